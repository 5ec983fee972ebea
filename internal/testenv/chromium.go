package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Chromium returns the program of Debian's browser, which it installs if it
// may. It returns [ErrUnavailable] if there is none.
func Chromium(ctx context.Context) (string, error) {
	program, err := exec.LookPath("chromium")
	if err != nil && os.Getuid() == 0 {
		install := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-liberation", "fonts-dejavu-core")
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("chromium: %w: %w: %s", ErrUnavailable, err, out)
		}
		program, err = exec.LookPath("chromium")
	}
	if err != nil {
		return "", fmt.Errorf("chromium: %w: install Debian's package chromium", ErrUnavailable)
	}
	return program, nil
}
