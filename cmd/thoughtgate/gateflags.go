package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// How approvers say which gate they mean, and who they are.
const (
	urlVariable   = "THOUGHTGATE_OPERATORS_URL"
	tokenVariable = "THOUGHTGATE_OPERATOR_TOKEN"
	defaultURL    = "http://127.0.0.1:8081"
)

// gateFlags say which gate is meant.
type gateFlags struct{ url, tokenFile *string }

// client returns the way to that gate.
func (g gateFlags) client() (*client.Client, error) {
	c, err := g.config()
	if err != nil {
		return nil, err
	}
	return client.New(c)
}

// config returns how that gate is reached.
func (g gateFlags) config() (client.Config, error) {
	token := os.Getenv(tokenVariable)
	if *g.tokenFile != "" {
		text, err := os.ReadFile(*g.tokenFile)
		if err != nil {
			return client.Config{}, err
		}
		if token = string(bytes.TrimSpace(text)); token == "" {
			return client.Config{}, fmt.Errorf("no token in %s", *g.tokenFile)
		}
	}
	at := cmp.Or(*g.url, os.Getenv(urlVariable))
	if token == "" && at == "" {
		return atDesk()
	}
	if token == "" {
		return client.Config{}, errors.New("no token: set " + tokenVariable + " or pass --token-file FILE")
	}
	return client.Config{URL: cmp.Or(at, defaultURL), Token: token}, nil
}

// atDesk returns the way to the inbox that all gates of the user share.
func atDesk() (client.Config, error) {
	at, err := findDesk()
	if errors.Is(err, localdesk.ErrNone) {
		return client.Config{}, errors.New("no token: set " + tokenVariable + " or pass --token-file FILE")
	}
	return client.Config{URL: at.URL, Token: at.Token}, err
}

// find returns a way to the gate, and the id that text abbreviates.
func (g gateFlags) find(ctx context.Context, text string) (*client.Client, task.ID, error) {
	c, err := g.client()
	if err != nil {
		return nil, "", err
	}
	id, err := c.Find(ctx, text)
	return c, id, explained(err)
}

// explained returns err in the words that an approver reads.
func explained(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		return err
	case refused.Type == "unauthorized":
		return errors.New("the gate does not accept this token")
	default:
		return errors.New(oneLine(refused.Error(), maxCell))
	}
}
