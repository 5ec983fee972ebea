// Package localdesk lets all gates that one user runs on one machine share one
// store and one inbox, without a daemon: in a private directory they find the file
// of the store, the token with which the user signs in, and the address of the
// inbox. One of them serves the inbox; when it ends, another goes on.
//
// The package knows neither what is stored nor what is served.
package localdesk

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/filelock"
)

// The files of a desk.
const (
	storeName   = "store.db"
	tokenName   = "token"
	addressName = "address"
	leaderName  = "leader" // locked by the process that is to serve the inbox
	servedName  = "served" // says where the inbox is served, and is locked as long as that is true
)

// Dir returns the directory of the desk in a state directory.
func Dir(state string) string { return filepath.Join(state, "desk") }

// StoreFile returns the name of the store's file in a state directory.
func StoreFile(state string) string { return filepath.Join(Dir(state), storeName) }

// Errors of those who look for a desk.
var (
	ErrNone       = errors.New("there is no shared inbox (desk) yet")
	ErrNotRunning = errors.New("no process serves the inbox of the desk")
)

// A Desk is what the gates of one user share.
type Desk struct {
	dir   string
	token string
	log   *slog.Logger
}

// Join returns the desk in a state directory. It makes what is not there: the
// directory, the token, and a choice of address. It fails if others than the user
// could get at any of it.
func Join(state string, log *slog.Logger) (*Desk, error) {
	d := &Desk{dir: Dir(state), log: log}
	if err := d.prepare(state); err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	return d, nil
}

func (d *Desk) prepare(state string) error {
	if state == "" {
		return errors.New("there is no state directory: set state_dir, or XDG_STATE_HOME or HOME")
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivate(d.dir); err != nil {
		return err
	}
	token, err := d.settle(tokenName, func() (string, error) { return bearer.New(tokenPrefix), nil })
	if err != nil {
		return err
	}
	d.token = token
	if _, err := d.address(); !errors.Is(err, errNoAddress) {
		return err
	}
	_, err = d.settle(addressName, freeAddress)
	return err
}

// tokenPrefix is how the tokens of operators begin.
const tokenPrefix = "tgo"

// settle returns the text of a file. If there is none, it writes one: of several
// processes that do so at the same time, one prevails.
func (d *Desk) settle(name string, choose func() (string, error)) (string, error) {
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

// write writes a text to a file that only its owner can read, has it put where it
// belongs, and leaves nothing else behind.
func (d *Desk) write(text string, put func(file string) error) error {
	file, err := os.CreateTemp(d.dir, "new-*") // that only its owner can read
	if err != nil {
		return err
	}
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = put(file.Name())
	}
	if gone := os.Remove(file.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

var errNoAddress = errors.New("no address")

// address returns where the inbox is.
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

// Token returns the token with which the user signs in. It is the same for all
// gates, and after every restart.
func (d *Desk) Token() string { return d.token }

// TokenFile returns the name of the file that holds the token.
func (d *Desk) TokenFile() string { return filepath.Join(d.dir, tokenName) }

// A Place is where an inbox is served, and the token that it wants.
type Place struct{ URL, Token string }

// Find returns where the inbox of the desk in a state directory is served. It
// returns [ErrNone] if there is no desk, and [ErrNotRunning] if no process serves
// it: then another program may have its address, and must not be shown the token.
func Find(state string) (Place, error) {
	d := &Desk{dir: Dir(state)}
	if _, err := os.Lstat(d.dir); state == "" || errors.Is(err, fs.ErrNotExist) {
		return Place{}, ErrNone
	}
	p, err := d.find()
	if err != nil {
		return Place{}, fmt.Errorf("desk in %s: %w", d.dir, err)
	}
	return p, nil
}

func (d *Desk) find() (Place, error) {
	if err := checkPrivate(d.dir); err != nil {
		return Place{}, err
	}
	file := filepath.Join(d.dir, servedName)
	if serves, err := filelock.IsLocked(file); err != nil || !serves {
		return Place{}, errors.Join(err, ErrNotRunning)
	}
	served, err := os.ReadFile(file)
	if err != nil || len(served) == 0 {
		return Place{}, errors.Join(err, ErrNotRunning) // another process is just beginning
	}
	token, err := d.read(tokenName)
	return Place{URL: "http://" + strings.TrimSpace(string(served)), Token: token}, err
}
