#!/bin/sh
# Writes what is secret or depends on the place into /run, where the configuration includes it.
set -eu
: "${SIP_PASSWORD:?is the password of the SIP account "caller"}"
: "${ARI_PASSWORD:?is the password of the REST interface}"
: "${AUDIOKV_URL:?is where the caption server listens, such as ws://127.0.0.1:8765}"

umask 077
secrets=${ASTERISK_SECRETS:-/run/asterisk/secrets}
mkdir -p "$secrets"
cat >"$secrets/pjsip.conf" <<END
[caller]
type=auth
auth_type=userpass
username=caller
password=$SIP_PASSWORD
END
cat >"$secrets/ari.conf" <<END
[captions]
type=user
read_only=no
password=$ARI_PASSWORD
END
case $AUDIOKV_URL in wss:*) tls=yes ;; *) tls=no ;; esac
cat >"$secrets/websocket_client.conf" <<END
[captions]
type=websocket_client
uri=$AUDIOKV_URL/v1/call/asterisk
protocols=media
username=asterisk
password=${AUDIOKV_TOKEN:-none}
connection_type=per_call_config
connection_timeout=500
reconnect_interval=500
reconnect_attempts=4
tls_enabled=$tls
END

exec asterisk -f
