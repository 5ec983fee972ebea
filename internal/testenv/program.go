package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Tmux returns the program of a terminal that tests can type into and read. It
// installs Debian's package if it may, and returns [ErrUnavailable] if there is
// none.
func Tmux(ctx context.Context) (string, error) {
	return program(ctx, "tmux", "tmux")
}

// SystemdAnalyze returns the program that checks units of systemd, likewise.
func SystemdAnalyze(ctx context.Context) (string, error) {
	return program(ctx, "systemd-analyze", "systemd")
}

// program returns the path of a program, which it installs from Debian's packages
// if it may.
func program(ctx context.Context, name string, packages ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && os.Getuid() == 0 {
		args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
		install := exec.CommandContext(ctx, "apt-get", args...) //nolint:gosec // packages are named in this package
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %w: %s", name, ErrUnavailable, err, out)
		}
		path, err = exec.LookPath(name)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: install Debian's package %s", name, ErrUnavailable, packages[0])
	}
	return path, nil
}
