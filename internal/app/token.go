package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/thoughtgate/thoughtgate-go/internal/filelock"
)

// MadeToken returns the token that was made because none was configured, or
// nothing. It is for the one who starts the gate, and is kept nowhere.
func (a *App) MadeToken() string { return a.operators.madeToken }

// tokenFile is the name of the file with the token that was made, and maxTokenFiles how many
// gates can have such a file in one directory.
const (
	tokenFile     = "operator-token"
	maxTokenFiles = 1000
)

// TokenFile returns the name of the file to which [App.KeepToken] has written, or that of the desk.
func (a *App) TokenFile() string {
	if a.operators.local != nil {
		return a.operators.local.TokenFile()
	}
	return a.operators.tokenFile
}

// KeepToken writes the token that was made to a file that only its owner can
// read, and logs where: what goes to a log is collected, and read by others. The file is
// this gate's until [App.Close].
func (a *App) KeepToken() error {
	if a.operators.madeToken == "" {
		return nil
	}
	if a.operators.local != nil {
		a.log.Info("inbox of all your gates", "url", a.operators.url(), "token_file", a.operators.local.TokenFile())
		return nil
	}
	dir := cmp.Or(a.cfg.StateDir, os.TempDir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	if err := a.operators.takeTokenFile(filepath.Join(dir, tokenFile)); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	if err := a.operators.writeToken(); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	a.log.Info("operator token generated because none is configured; it is valid until the gate stops", "file", a.TokenFile(), "login", a.operators.url()+"/login")
	return nil
}

// takeTokenFile chooses the file for the token, and locks it: the first of NAME, NAME-2, NAME-3
// and so on that no other gate has. The lock is on a file beside it, because the one with the
// token is replaced.
func (o *operators) takeTokenFile(first string) (err error) {
	name := first
	for n := 2; n <= maxTokenFiles; n++ {
		o.tokenLock, err = filelock.Lock(name + ".lock")
		if !errors.Is(err, filelock.ErrLocked) && !errors.Is(err, fs.ErrPermission) { // or it is another user's
			break
		}
		name = first + "-" + strconv.Itoa(n)
	}
	if err != nil {
		return fmt.Errorf("lock a file beside %s: %w; set operators.token or another state_dir", first, err)
	}
	if o.tokenFile = name; name != first {
		o.log.Warn("another gate has its operator token in the same state directory; that of this gate is in a file of its own", "other", first, "file", name)
	}
	return nil
}

// writeToken replaces the file for the token by one with the token that was made.
func (o *operators) writeToken() error {
	file, err := os.CreateTemp(filepath.Dir(o.tokenFile), tokenFile+".*") // that only its owner can read
	if err != nil {
		return err
	}
	_, err = file.WriteString(o.madeToken + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), o.tokenFile)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// leaveTokenFile lets another gate have the file for the token.
func (o *operators) leaveTokenFile() {
	if o.tokenLock != nil {
		_ = o.tokenLock.Close()
	}
}

// LoginLink returns the link with which the one who starts the gate logs in, or
// nothing if no token was made.
func (a *App) LoginLink() string {
	if a.operators.madeToken == "" {
		return ""
	}
	return a.operators.url() + "/login?token=" + a.operators.madeToken
}
