package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
)

// GeneratedToken returns the token that was generated because none is configured, or
// nothing. Show it only to the person who starts the gate.
func (a *App) GeneratedToken() string { return a.operators.generatedToken }

const (
	tokenFile     = "operator-token" // contains the generated token
	maxTokenFiles = 1000             // of different gates in one directory
)

// TokenFile returns the name of the file that [App.SaveToken] has written, or of the person's
// file of the desk.
func (a *App) TokenFile() string {
	if a.operators.desk != nil {
		return a.operators.desk.SignInFile()
	}
	return a.operators.tokenFile
}

// SaveToken writes the generated token to a file that only its owner can read, and logs the
// name of the file: other people may read the log. The file stays locked until [App.Close].
func (a *App) SaveToken() error {
	if a.operators.generatedToken == "" {
		return nil
	}
	if a.operators.desk != nil {
		a.base.log.Info("inbox of all your gates", "url", a.operators.url(), "token_file", a.TokenFile())
		return nil
	}
	dir := cmp.Or(a.base.cfg.StateDir, os.TempDir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	if err := a.operators.lockTokenFile(filepath.Join(dir, tokenFile)); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	if err := a.operators.writeToken(); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	a.base.log.Info("operator token generated because none is configured; it is valid until the gate stops", "file", a.TokenFile(), "login", a.operators.url()+"/login")
	return nil
}

// lockTokenFile chooses and locks the file for the token: the first of NAME, NAME-2, NAME-3
// and so on that no other gate uses. It locks NAME.lock, because NAME is replaced.
func (o *operators) lockTokenFile(first string) (err error) {
	name := first
	for n := 2; n <= maxTokenFiles; n++ {
		//mutate:swap `localdesk.Lock(name + ".lock")` "os.Open(os.DevNull)" TestTokenFileOfAnotherGate a gate overwrites the token of another
		o.tokenLock, err = localdesk.Lock(name + ".lock")
		if !errors.Is(err, localdesk.ErrLocked) && !errors.Is(err, fs.ErrPermission) { // of another user
			break
		}
		name = first + "-" + strconv.Itoa(n)
	}
	if err != nil {
		return fmt.Errorf("lock a file beside %s: %w; set operators.token or another state_dir", first, err)
	}
	if o.tokenFile = name; name != first {
		o.base.log.Warn("another gate uses the operator token file of this state directory; using another file", "other", first, "file", name)
	}
	return nil
}

// writeToken replaces the token file by one with the generated token.
func (o *operators) writeToken() error {
	file, err := os.CreateTemp(filepath.Dir(o.tokenFile), tokenFile+".*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(o.generatedToken + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), o.tokenFile)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// unlockTokenFile lets another gate use the token file.
func (o *operators) unlockTokenFile() {
	if o.tokenLock != nil {
		_ = o.tokenLock.Close()
	}
}

// passkeyCodeValid is how long the code for the first passkey is valid.
const passkeyCodeValid = 15 * time.Minute

// FirstPasskeyLink returns a link with which an operator can add the first passkey of this site, or nothing
// if the site ever had one or no workflow of this gate needs one. Show it only to the person who starts the gate.
func (a *App) FirstPasskeyLink(ctx context.Context) (string, error) {
	if !a.base.cfg.NeedsPasskeys() && a.operators.desk == nil {
		return "", nil
	}
	at, err := url.Parse(strings.Replace(a.operators.url(), "//127.0.0.1:", "//localhost:", 1)) // browsers allow passkeys at localhost
	if err != nil {
		return "", err
	}
	code, err := a.approvals.service.Passkeys().First(ctx, at.Hostname(), passkeyCodeValid)
	if err != nil || code == "" {
		return "", err
	}
	return at.String() + "/passkeys?code=" + code, nil
}

// LoginLink returns a link that signs in with the generated token, or nothing without one.
func (a *App) LoginLink() string {
	if a.operators.generatedToken == "" {
		return ""
	}
	return a.operators.url() + "/login?token=" + a.operators.generatedToken
}
