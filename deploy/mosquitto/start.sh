#!/bin/sh
# Writes the logins from the environment into the password file, then starts the broker.
set -eu
: "${MQTT_PASSWORD:?is the password of the user audiokv, the server}"
: "${MQTT_VIEWER_PASSWORD:?is the password of the user viewer, who reads captions}"
home=${MOSQUITTO_HOME:-/mosquitto}

umask 077
passwords=$home/data/passwords
: >"$passwords"
mosquitto_passwd -b "$passwords" audiokv "$MQTT_PASSWORD"
mosquitto_passwd -b "$passwords" viewer "$MQTT_VIEWER_PASSWORD"
# The broker gives up root's rights before it reads the file.
[ "$(id -u)" != 0 ] || chown -R mosquitto: "$home/data"

exec mosquitto -c "$home/config/mosquitto.conf"
