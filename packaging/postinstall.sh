#!/bin/sh
# Runs after the Debian package is installed or upgraded.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An upgrade goes on with the new program. A new service waits for its configuration.
	systemctl try-restart thoughtgate.service || true
fi
