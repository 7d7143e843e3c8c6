# The caption server. CPU by default; `--build-arg DEVICE=cuda` installs a CUDA build of PyTorch.
# docs/deployment.md says how to build and run it.

ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
ARG DEVICE=cpu
# Package index with the PyTorch build of that device, where the default index has another one.
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /venv
WORKDIR /src
# The dependencies first, with an empty package: a layer that changes of the code leave alone.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir audiokv && touch audiokv/__init__.py \
    && /venv/bin/pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
       -c constraints.txt '.[whisper-base]' \
    && /venv/bin/pip uninstall -y audiokv
COPY deploy/check_torch.py ./
RUN /venv/bin/python check_torch.py "$DEVICE"
COPY audiokv audiokv
RUN /venv/bin/pip install --no-deps .

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --uid 10001 --user-group --home-dir /models --no-create-home audiokv \
    && install -d -o audiokv -g audiokv /models
COPY --from=build /venv /venv
COPY deploy/healthcheck.py /venv/bin/healthcheck
# Converted weights and downloads of the model hub: everything the server ever writes.
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    AUDIOKV_CACHE=/models/audiokv \
    HF_HOME=/models/hub
VOLUME /models
USER audiokv
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "/venv/bin/healthcheck"]
ENTRYPOINT ["audiokv"]
CMD ["serve", "--host", "0.0.0.0"]
