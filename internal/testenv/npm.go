package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// InstallNPM installs pinned npm packages, for tests that need JavaScript programs. It returns
// a directory below cache whose node_modules has exactly the packages of pins: a package.json
// and its package-lock.json, with the digests that npm verifies. It installs only what is
// missing, and several processes may call it at the same time. The name makes the directory
// recognizable in the cache.
func InstallNPM(ctx context.Context, cache, name string, pins fs.FS) (string, error) {
	lock, err := fs.ReadFile(pins, "package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	return dir, download(ctx, cache, dir, pins)
}

// download installs into a temporary directory and renames it at the end, so that dir is
// always complete.
func download(ctx context.Context, cache, dir string, pins fs.FS) error {
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // after the rename there is nothing left to remove
	if err := os.CopyFS(temp, pins); err != nil {
		return err
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = temp
	npm.WaitDelay = time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	err = os.Rename(temp, dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster, with the same content
	}
	return err
}
