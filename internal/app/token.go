package app

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MadeToken returns the token that was made because none was configured, or
// nothing. It is for the one who starts the gate, and is kept nowhere.
func (a *App) MadeToken() string { return a.operators.madeToken }

// tokenFile is the name of the file with the token that was made.
const tokenFile = "operator-token"

// TokenFile returns the name of the file to which [App.KeepToken] writes.
func (a *App) TokenFile() string {
	if a.operators.local != nil {
		return a.operators.local.TokenFile()
	}
	return filepath.Join(cmp.Or(a.cfg.StateDir, os.TempDir()), tokenFile)
}

// KeepToken writes the token that was made to a file that only its owner can
// read, and logs where: what goes to a log is collected, and read by others.
func (a *App) KeepToken() error {
	if a.operators.madeToken == "" {
		return nil
	}
	if a.operators.local != nil {
		a.log.Info("inbox of all your gates", "url", a.operators.url(), "token_file", a.operators.local.TokenFile())
		return nil
	}
	dir := filepath.Dir(a.TokenFile())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	file, err := os.CreateTemp(dir, tokenFile+".*") // that only its owner can read
	if err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	name := a.TokenFile()
	_, err = file.WriteString(a.operators.madeToken + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("operator token: %w", errors.Join(err, os.Remove(file.Name())))
	}
	a.log.Info("operator token generated because none is configured; it is valid until the gate stops", "file", name, "login", a.operators.url()+"/login")
	return nil
}

// LoginLink returns the link with which the one who starts the gate logs in, or
// nothing if no token was made.
func (a *App) LoginLink() string {
	if a.operators.madeToken == "" {
		return ""
	}
	return a.operators.url() + "/login?token=" + a.operators.madeToken
}
