"""AudioKV: live captions from streamed audio, in constant memory."""
