package push

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Subscription is the address of a browser at its push service, in the terms of the
// Push API.
type Subscription struct {
	Endpoint string `json:"endpoint"`
	Key      string `json:"key"`  // p256dh
	Auth     string `json:"auth"` // a secret
}

// A storedSubscription is a subscription in the store. It ends with the session in which
// it was made.
type storedSubscription struct {
	Subscription Subscription `json:",inline"`
	Session      string       `json:"login"` // its ID

	record string // the name of the record
}

// The errors of [Push.Subscribe] for a subscription that is refused.
var (
	ErrNoLogin  = errors.New("push: only an operator who has signed in can subscribe")
	ErrEndpoint = errors.New("push: the subscription must name an https URL of a push service")
)

// recordPrefix begins the names of the records of subscriptions.
const recordPrefix = "push/"

// maxEndpoint is the length of the longest accepted endpoint URL.
const maxEndpoint = 1000

// recordOf returns the name of the record of a session, which has one subscription at
// most.
func recordOf(session string) string {
	sum := sha256.Sum256([]byte(session))
	return recordPrefix + hex.EncodeToString(sum[:16])
}

// A receiver is a parsed subscription.
type receiver struct {
	endpoint *url.URL
	key      *ecdh.PublicKey
	secret   []byte
}

// parse returns the parts of a subscription, or [ErrEndpoint].
func (s Subscription) parse() (receiver, error) {
	endpoint, err := url.Parse(s.Endpoint)
	//mutate:swap `endpoint.Scheme != "https" || ` "" TestInvalidSubscriptionIsRefused a push goes to an endpoint without encryption
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.User != nil || len(s.Endpoint) > maxEndpoint {
		return receiver{}, ErrEndpoint
	}
	point, badPoint := encoding.DecodeString(s.Key)
	key, badKey := ecdh.P256().NewPublicKey(point)
	secret, badSecret := encoding.DecodeString(s.Auth)
	if badPoint != nil || badKey != nil || badSecret != nil || len(secret) != secretSize {
		return receiver{}, ErrEndpoint
	}
	return receiver{endpoint, key, secret}, nil
}

// Subscribe lets the browser of an operator receive messages until the operator's session
// ends. The error is [ErrNoLogin] or [ErrEndpoint] if the subscription is refused.
func (p *Push) Subscribe(ctx context.Context, o operator.Operator, s Subscription) error {
	if o.SessionID() == "" {
		return ErrNoLogin
	}
	if _, err := s.parse(); err != nil {
		return err
	}
	value, err := json.Marshal(&storedSubscription{Subscription: s, Session: o.SessionID()})
	if err != nil {
		return err
	}
	expires := o.Expires()
	if now := p.cfg.Now(); now.After(expires) {
		expires = now
	}
	for {
		old, err := p.cfg.Records.GetRecord(ctx, recordOf(o.SessionID()))
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
		r := gatestore.Record{Name: recordOf(o.SessionID()), Version: old.Version + 1, Value: value, Expires: expires}
		if err := p.cfg.Records.PutRecord(ctx, r); !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
}

// Unsubscribe removes the subscription of an operator's session.
func (p *Push) Unsubscribe(ctx context.Context, o operator.Operator) error {
	if o.SessionID() == "" {
		return ErrNoLogin
	}
	return p.cfg.Records.DeleteRecord(ctx, recordOf(o.SessionID()))
}

const (
	pageSize      = 100             // subscriptions read at a time
	maxLookups    = 32              // owners looked up at a time
	lookupTimeout = 8 * time.Second // for all owners; the rest of the time is for sending
)

// An ownedSubscription is a subscription and its present owner.
type ownedSubscription struct {
	stored storedSubscription
	owner  operator.Operator
	err    error // why the owner is unknown
}

// receivers returns the subscriptions of the operators who may decide about a call, each
// browser once. Skipped says why some may be missing; it is nil if none is.
func (p *Push) receivers(ctx context.Context, id task.ID) (to []storedSubscription, skipped, err error) {
	lookups, stop := context.WithTimeout(ctx, lookupTimeout)
	defer stop()
	seen := map[string]bool{}
	q := gatestore.RecordQuery{Prefix: recordPrefix, Limit: pageSize}
	for {
		page, err := p.cfg.Records.ListRecords(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range p.owners(lookups, page) {
			may, err := p.mayReceive(ctx, id, o)
			switch endpoint := o.stored.Subscription.Endpoint; {
			case errors.Is(err, errOwnerUnknown):
				skipped = err
			case err != nil:
				return nil, nil, err
			case may && !seen[endpoint]:
				seen[endpoint] = true
				to = append(to, o.stored)
			}
		}
		if len(page) < pageSize {
			return to, skipped, nil
		}
		q.After = page[len(page)-1].Name
	}
}

// owners returns the subscriptions in records with their owners. Owners are looked up at
// the same time, so that a slow identity provider delays only its own users.
func (p *Push) owners(ctx context.Context, records []gatestore.Record) []ownedSubscription {
	all := make([]ownedSubscription, len(records))
	var lookups errgroup.Group
	lookups.SetLimit(maxLookups)
	for i, r := range records {
		lookups.Go(func() error {
			all[i] = p.owner(ctx, r)
			return nil
		})
	}
	_ = lookups.Wait() // always nil
	return all
}

var (
	errUnreadable   = errors.New("push: the subscription cannot be read")
	errOwnerUnknown = errors.New("the owner of a push subscription is unknown")
)

func (p *Push) owner(ctx context.Context, r gatestore.Record) ownedSubscription {
	o := ownedSubscription{stored: storedSubscription{record: r.Name}}
	if json.Unmarshal(r.Value, &o.stored) != nil {
		o.err = errUnreadable
		return o
	}
	o.owner, o.err = p.findOperator(ctx, o.stored.Session)
	return o
}

// findOperator returns the operator of a session, or an error when ctx ends. The lookup
// itself continues after that, so that a new refresh token from the identity provider is
// stored. [Push.Close] waits for it.
func (p *Push) findOperator(ctx context.Context, session string) (operator.Operator, error) {
	if ctx.Err() != nil {
		return operator.Operator{}, ctx.Err()
	}
	found := make(chan ownedSubscription, 1)
	p.lookups.Go(func() {
		o, err := p.cfg.FindOperator(ctx, session)
		found <- ownedSubscription{owner: o, err: err}
	})
	select {
	case o := <-found:
		return o.owner, o.err
	case <-ctx.Done():
		return operator.Operator{}, ctx.Err()
	}
}

// Close implements [channel.Closer]. It waits for lookups of owners.
func (p *Push) Close() { p.lookups.Wait() }

// mayReceive reports whether the owner of a subscription may decide about a call. It
// removes the subscription if the session has ended or the owner is no longer an approver.
func (p *Push) mayReceive(ctx context.Context, id task.ID, o ownedSubscription) (bool, error) {
	refused, known := errors.AsType[*operator.Error](o.err)
	switch {
	case errors.Is(o.err, errUnreadable):
		return false, p.remove(ctx, o.stored, "it cannot be read")
	//mutate:swap " && o.owner.Role.Includes(operator.Approver)" "" TestSubscriptionEndsWithRights a push goes to an operator who is no longer an approver
	case o.err == nil && o.owner.Role.Includes(operator.Approver):
		//mutate:swap "p.cfg.MayDecide(ctx, id, o.owner)" "true, ctx.Err()" TestOnlyApproversAreNotified a push goes to operators who may not decide
		return p.cfg.MayDecide(ctx, id, o.owner)
	case o.err == nil:
		return false, p.remove(ctx, o.stored, "its owner is no longer an approver")
	case known && refused.Type != operator.TypeUnavailable:
		return false, p.remove(ctx, o.stored, "its session has ended")
	default:
		p.cfg.Log.WarnContext(ctx, "push subscription skipped", "err", o.err)
		return false, fmt.Errorf("%w: %w", errOwnerUnknown, o.err)
	}
}

func (p *Push) remove(ctx context.Context, s storedSubscription, why string) error {
	p.cfg.Log.InfoContext(ctx, "push subscription removed", "why", why)
	return p.cfg.Records.DeleteRecord(ctx, s.record)
}
