package testenv

import "context"

// Chromium returns the program of Debian's browser, which it installs if it
// may. It returns [ErrUnavailable] if there is none.
func Chromium(ctx context.Context) (string, error) {
	return program(ctx, "chromium", "chromium", "fonts-liberation", "fonts-dejavu-core")
}
