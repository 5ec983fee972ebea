// Package localdesk lets all gates that one user runs on one machine share one store
// and one inbox, without a daemon. They share a private directory with the store's
// file, a token for programs, the secret that the user signs in with, and the address of
// the inbox. One gate serves the inbox; when it ends, another takes over:
//
//	desk, err := localdesk.Join(stateDir, log)
//	l, err := desk.Listen(nil, endSessions)
//	conn, err := l.Accept() // waits until this process is the one that serves
//
// "Desk" is the users' word for this shared inbox; see the command thoughtgate desk.
package localdesk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
)

// The files in the directory of a desk.
const (
	storeName   = "store.db"
	tokenName   = "token"   // of programs, which can reject but not approve
	signInName  = "sign-in" // the secret of the person, who can approve
	addressName = "address"
	leaderName  = "leader" // locked by the process that may serve the inbox
	servedName  = "served" // the address at which the inbox is served; valid only while locked
)

// Dir returns the directory of the desk in a state directory.
func Dir(state string) string { return filepath.Join(state, "desk") }

// StoreFile returns the name of the store's file in a state directory.
func StoreFile(state string) string { return filepath.Join(Dir(state), storeName) }

// Errors of [Find].
var (
	ErrNoDesk     = errors.New("there is no shared inbox (desk) yet")
	ErrNotRunning = errors.New("no process serves the inbox of the desk")
)

// A Desk is the directory that the gates of one user share.
type Desk struct {
	dir    string
	token  string
	signIn string
	log    *slog.Logger
}

// Join returns the desk in a state directory. It creates the directory and the files that
// are missing. It fails if other users can access the directory.
func Join(state string, log *slog.Logger) (*Desk, error) {
	d := &Desk{dir: Dir(state), log: log}
	if err := d.prepare(state); err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	return d, nil
}

// checkPrivate returns an error unless dir is a directory of the user, for nobody else.
func checkPrivate(dir string) error {
	found, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !found.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return localuser.CheckPrivate(dir)
}

func (d *Desk) prepare(state string) error {
	if state == "" {
		return errors.New("no state directory: set state_dir, XDG_STATE_HOME or HOME")
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivate(d.dir); err != nil {
		return err
	}
	if err := d.prepareSecrets(); err != nil {
		return err
	}
	if _, err := d.address(); !errors.Is(err, errNoAddress) {
		return err
	}
	_, err := d.readOrCreate(addressName, freeAddress)
	return err
}

// prepareSecrets reads or creates the secrets. Earlier versions had only the token, and it
// could approve. It stays the token of programs, and the person gets a new secret.
func (d *Desk) prepareSecrets() (err error) {
	create := func() (string, error) { return tokenPrefix + "_" + rand.Text(), nil }
	if d.token, err = d.readOrCreate(tokenName, create); err != nil || !d.keepsSignIn() {
		return err
	}
	if d.signIn, err = d.readOrCreate(signInName, create); err == nil && d.signIn == d.token {
		err = fmt.Errorf("%s holds the token of programs: remove it", d.SignInFile())
	}
	return err
}

// keepsSignIn reports whether the secret of the person is in a file. Without it, no file of
// the desk contains anything that can approve.
func (*Desk) keepsSignIn() bool { return true }

// tokenPrefix marks the tokens of operators.
const tokenPrefix = "tgo"

// readOrCreate returns the text of a file. If there is no such file, it writes one. If
// several processes do so at once, all use the file of the first.
func (d *Desk) readOrCreate(name string, choose func() (string, error)) (string, error) {
	text, err := d.read(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	if text, err = choose(); err != nil {
		return "", err
	}
	err = d.write(text, func(file string) error { return os.Link(file, filepath.Join(d.dir, name)) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return d.read(name)
}

// read returns the one line of a file.
func (d *Desk) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	line := strings.TrimSpace(string(text))
	if err == nil && line == "" {
		err = fmt.Errorf("%s is empty: remove it", filepath.Join(d.dir, name))
	}
	return line, err
}

// write writes text to a temporary file that only its owner can read, lets put move or
// link it into place, and removes the temporary file.
func (d *Desk) write(text string, put func(file string) error) error {
	file, err := os.CreateTemp(d.dir, "new-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = put(file.Name())
	}
	if failed := os.Remove(file.Name()); !errors.Is(failed, fs.ErrNotExist) {
		err = errors.Join(err, failed)
	}
	return err
}

var errNoAddress = errors.New("no address")

// address returns the address of the inbox.
func (d *Desk) address() (*net.TCPAddr, error) {
	text, err := d.read(addressName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoAddress
	}
	if err != nil {
		return nil, err
	}
	address, err := net.ResolveTCPAddr("tcp", text)
	if err != nil || !address.IP.IsLoopback() || address.Port == 0 {
		return nil, fmt.Errorf("%s does not hold a loopback address with a port: remove it", filepath.Join(d.dir, addressName))
	}
	return address, nil
}

// Token returns the token of programs, which may look and reject. All gates share it, and
// it survives restarts.
func (d *Desk) Token() string { return d.token }

// SignIn returns the secret that the person signs in with, or nothing if no file has it. All
// gates share it, and it survives restarts.
func (d *Desk) SignIn() string { return d.signIn }

// SignInFile returns the name of the file with the secret of the person.
func (d *Desk) SignInFile() string { return filepath.Join(d.dir, signInName) }

// An Inbox is the URL at which the shared inbox is served, and the secrets for it.
type Inbox struct {
	URL    string
	Token  string // of programs, which may look and reject
	SignIn string // of the person; empty if no file has it, or a process of an earlier version serves
}

// Find returns the inbox of the desk in a state directory. It returns [ErrNoDesk] if
// there is no desk. It returns [ErrNotRunning] if no process serves the inbox: another
// program may then use the address, and must not receive the token.
func Find(state string) (Inbox, error) {
	d := &Desk{dir: Dir(state)}
	if _, err := os.Lstat(d.dir); state == "" || errors.Is(err, fs.ErrNotExist) {
		return Inbox{}, ErrNoDesk
	}
	inbox, err := d.find()
	if err != nil {
		return Inbox{}, fmt.Errorf("desk in %s: %w", d.dir, err)
	}
	return inbox, nil
}

func (d *Desk) find() (Inbox, error) {
	if err := checkPrivate(d.dir); err != nil {
		return Inbox{}, err
	}
	file := filepath.Join(d.dir, servedName)
	//mutate:swap "serves, err := isLocked(file); err != nil || !serves" "_, err := isLocked(file); err != nil" TestLeaderWithoutAddressIsNotFound the token is sent to the address of an earlier inbox
	if serves, err := isLocked(file); err != nil || !serves {
		return Inbox{}, errors.Join(err, ErrNotRunning)
	}
	served, err := os.ReadFile(file)
	if err != nil || len(served) == 0 {
		return Inbox{}, errors.Join(err, ErrNotRunning) // another process is about to write it
	}
	address, accepts, _ := strings.Cut(strings.TrimSpace(string(served)), "\n")
	inbox := Inbox{URL: "http://" + address}
	if inbox.Token, err = d.read(tokenName); err != nil || accepts != signInName {
		return inbox, err
	}
	if inbox.SignIn, err = d.read(signInName); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return inbox, err
}
