package signin

import (
	"errors"
	"time"

	"github.com/zalando/go-keyring"
)

// SystemKeyring is the keyring of the operating system.
type SystemKeyring struct{}

const (
	keyringService = "thoughtgate"
	keyringUser    = "sign-ins"

	// keyringTimeout limits the wait for the keyring, which may ask the person for a password.
	keyringTimeout = 30 * time.Second
)

// Get implements [Keyring].
func (SystemKeyring) Get() (string, error) {
	text := ""
	err := inTime(func() (err error) {
		text, err = keyring.Get(keyringService, keyringUser)
		return err
	})
	if errors.Is(err, keyring.ErrNotFound) {
		err = ErrNoKey
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

// Set implements [Keyring].
func (SystemKeyring) Set(text string) error {
	return inTime(func() error { return keyring.Set(keyringService, keyringUser, text) })
}

// inTime returns the error of f, or that its time is over. The functions of the keyring have no
// time limit.
func inTime(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(keyringTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errors.New("the keyring does not answer")
	}
}
