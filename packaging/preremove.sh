#!/bin/sh
# Runs before the Debian package is removed, and not before an upgrade.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now thoughtgate.service || true
fi
