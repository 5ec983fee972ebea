package push

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Subscription is where a browser takes messages, in the terms of the Push API.
type Subscription struct {
	Endpoint string `json:"endpoint"`
	Key      string `json:"key"`  // p256dh
	Auth     string `json:"auth"` // a secret
}

// A kept is a subscription as the store has it. It belongs to the login with which it
// was made, and ends with that.
type kept struct {
	Subscription

	Login string `json:"login"`

	record string
}

// The errors of a subscription that is not taken.
var (
	ErrNoLogin  = errors.New("push: only somebody who has signed in can subscribe")
	ErrEndpoint = errors.New("push: the subscription is not one of a push service over https")
)

// recordPrefix begins the names of subscriptions.
const recordPrefix = "push/"

// maxEndpoint is how long the URL of a subscription may be.
const maxEndpoint = 1000

// recordOf returns the name of the record of a login: there is one subscription for each.
func recordOf(login string) string {
	sum := sha256.Sum256([]byte(login))
	return recordPrefix + hex.EncodeToString(sum[:16])
}

// parse returns the parts of a subscription, or [ErrEndpoint].
func (s Subscription) parse() (*url.URL, *ecdh.PublicKey, []byte, error) { //nolint:revive // four results that belong together
	endpoint, err := url.Parse(s.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || len(s.Endpoint) > maxEndpoint {
		return nil, nil, nil, ErrEndpoint
	}
	point, err := encoding.DecodeString(s.Key)
	if err != nil {
		return nil, nil, nil, ErrEndpoint
	}
	key, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, nil, nil, ErrEndpoint
	}
	secret, err := encoding.DecodeString(s.Auth)
	if err != nil || len(secret) != secretSize {
		return nil, nil, nil, ErrEndpoint
	}
	return endpoint, key, secret, nil
}

// Subscribe has the browser of somebody who has signed in be sent messages until the
// login ends. The error is [ErrNoLogin] or [ErrEndpoint] if that cannot be.
func (p *Push) Subscribe(ctx context.Context, who operator.Operator, s Subscription) error {
	if who.Login() == "" {
		return ErrNoLogin
	}
	if _, _, _, err := s.parse(); err != nil {
		return err
	}
	value, err := json.Marshal(&kept{Subscription: s, Login: who.Login()})
	if err != nil {
		return err
	}
	for {
		r := task.Record{Name: recordOf(who.Login()), Version: 1, Value: value, Expires: later(who.Expires(), p.cfg.Now())}
		old, err := p.cfg.Records.GetRecord(ctx, r.Name)
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
		r.Version = old.Version + 1
		if err := p.cfg.Records.PutRecord(ctx, r); !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}

// Unsubscribe ends the subscription of a login.
func (p *Push) Unsubscribe(ctx context.Context, who operator.Operator) error {
	if who.Login() == "" {
		return ErrNoLogin
	}
	return p.cfg.Records.DeleteRecord(ctx, recordOf(who.Login()))
}

const (
	pageSize  = 100             // how many subscriptions are read at a time
	askAtOnce = 32              // how many owners of subscriptions are looked up at a time
	askTime   = 8 * time.Second // how long looking up all may take; the rest is for sending
)

// An owned is a subscription, and the one who made it as they are now.
type owned struct {
	kept

	who operator.Operator
	err error // why it is not known who that is, if it is not
}

// each calls do with every subscription, and the one who made it as they are now, or the
// error if that cannot be known now. A subscription whose login has ended, or whose owner
// may not decide any more, is removed.
func (p *Push) each(ctx context.Context, do func(k kept, who operator.Operator, unknown error)) error {
	asking, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	q := task.RecordQuery{Prefix: recordPrefix, Limit: pageSize}
	for {
		page, err := p.cfg.Records.ListRecords(ctx, q)
		if err != nil {
			return err
		}
		for _, o := range p.owners(asking, page) {
			if err := p.look(ctx, o, do); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		q.After = page[len(page)-1].Name
	}
}

// owners returns the subscriptions in records with those who made them. An identity
// provider that does not answer about some holds up nobody else.
func (p *Push) owners(ctx context.Context, records []task.Record) []owned {
	all := make([]owned, len(records))
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i, r := range records {
		asking.Go(func() error {
			all[i] = p.owner(ctx, r)
			return nil
		})
	}
	_ = asking.Wait() // none returns an error
	return all
}

var errUnreadable = errors.New("push: the subscription cannot be read")

func (p *Push) owner(ctx context.Context, r task.Record) owned {
	o := owned{kept: kept{record: r.Name}}
	if json.Unmarshal(r.Value, &o.kept) != nil {
		o.err = errUnreadable
		return o
	}
	o.who, o.err = p.recall(ctx, o.Login)
	return o
}

// recall returns whose login it is, or an error when ctx ends. The gate goes on asking
// the identity provider then, so that no refresh token is lost; [Push.Wait] waits for it.
func (p *Push) recall(ctx context.Context, login string) (operator.Operator, error) {
	if ctx.Err() != nil {
		return operator.Operator{}, ctx.Err()
	}
	answer := make(chan owned, 1)
	p.recalling.Go(func() {
		who, err := p.cfg.Recall(ctx, login)
		answer <- owned{who: who, err: err}
	})
	select {
	case o := <-answer:
		return o.who, o.err
	case <-ctx.Done():
		return operator.Operator{}, ctx.Err()
	}
}

// Wait implements [channel.Waiter].
func (p *Push) Wait() { p.recalling.Wait() }

func (p *Push) look(ctx context.Context, o owned, do func(k kept, who operator.Operator, unknown error)) error {
	refused, known := errors.AsType[*operator.Error](o.err)
	switch {
	case errors.Is(o.err, errUnreadable):
		return p.remove(ctx, o.kept, "cannot be read")
	case o.err == nil && o.who.Role.Includes(operator.Approver):
		do(o.kept, o.who, nil)
		return nil
	case o.err == nil:
		return p.remove(ctx, o.kept, "its owner is no approver any more")
	case known && refused.Type != operator.TypeUnavailable:
		return p.remove(ctx, o.kept, "its login has ended")
	default:
		p.cfg.Log.WarnContext(ctx, "push subscription left out", "error", o.err)
		do(o.kept, operator.Operator{}, o.err)
		return nil
	}
}

func (p *Push) remove(ctx context.Context, k kept, why string) error {
	p.cfg.Log.InfoContext(ctx, "push subscription removed", "why", why)
	return p.cfg.Records.DeleteRecord(ctx, k.record)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
