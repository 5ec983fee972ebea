package passkey

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-webauthn/webauthn/protocol"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Passkey is a passkey of an operator.
type Passkey struct {
	ID       []byte    `json:"id"`
	Key      []byte    `json:"key"` // the public key, in COSE
	Site     string    `json:"site"`
	Operator string    `json:"operator"`
	Label    string    `json:"label"` // given by the operator
	AddedAt  time.Time `json:"addedAt"`
	AddedBy  string    `json:"addedBy"` // by whose right it was added, in words

	RemovedAt time.Time `json:"removedAt,omitzero"`
	RemovedBy string    `json:"removedBy,omitzero"`

	version int64
}

// Name identifies p.
func (p Passkey) Name() string { return digestOf(p.ID) }

// Removed reports whether p no longer counts.
func (p Passkey) Removed() bool { return !p.RemovedAt.IsZero() }

// A Store keeps passkeys, and records changes in the journal before they take effect.
type Store struct {
	Records gatestore.Records
	Journal interface {
		Append(ctx context.Context, notes ...task.Note) error
	}
	Now func() time.Time
}

const (
	passkeys    = "passkey/"
	invitations = "passkey-invitation/"
	usedUp      = "passkey-used/" // challenges that count only once
)

// Limits on what operators add.
const (
	maxPasskeys = 20  // of one operator
	maxAll      = 500 // in a store
	maxLabel    = 60
	maxAnswer   = 16 << 10 // of a browser, in bytes
)

// The errors of a [Store] besides [ErrInvalid].
var (
	ErrNotInvited = errors.New("a passkey needs an invitation, or the signature of another passkey of the same operator")
	ErrTooMany    = errors.New("there are too many passkeys")
	ErrNoPasskey  = errors.New("there is no such passkey, or you have none that could confirm it")
	ErrLast       = errors.New("this is the last passkey; add another one before you remove it")
)

// All returns all passkeys, also those that were removed, oldest first.
func (s Store) All(ctx context.Context) ([]Passkey, error) {
	found, err := s.Records.ListRecords(ctx, gatestore.RecordQuery{Prefix: passkeys, Limit: maxAll})
	if err != nil {
		return nil, err
	}
	var all []Passkey
	for _, r := range found {
		p, err := decode(r)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Passkey) int { return a.AddedAt.Compare(b.AddedAt) })
	return all, nil
}

// Of returns the passkeys of an operator that count.
func (s Store) Of(ctx context.Context, operator string) ([]Passkey, error) {
	all, err := s.All(ctx)
	return slices.DeleteFunc(all, func(p Passkey) bool { return p.Removed() || p.Operator != operator }), err
}

// Verify returns [ErrInvalid] unless a passkey of the operator has signed the statement of a signature, which
// names the operator as the approver.
func (s Store) Verify(ctx context.Context, signed gatetask.Signature) error {
	p, err := s.find(ctx, signed.Credential)
	if err != nil {
		return err
	}
	switch {
	//mutate:false TestSignaturesOfOthers a passkey of another operator counts
	case p.Operator != signed.Statement.Approver:
		return invalid("it is a passkey of another operator")
	//mutate:false TestRemovedPasskey a passkey counts after it was removed
	case p.Removed():
		return invalid("this passkey was removed")
	case !bytes.Equal(p.Key, signed.Key) || p.Site != signed.Site:
		return invalid("the stored signature has another key")
	}
	return Check(signed)
}

// Sign returns the signature in the answer of a browser at a site, if a passkey of the approver has signed
// the statement.
func (s Store) Sign(ctx context.Context, answer string, at Site, about gatetask.Statement) (gatetask.Signature, error) {
	signed, err := s.signedBy(ctx, about.Approver, answer, at, ToApprove(about))
	signed.Statement = about
	return signed, err
}

// signedBy reads the answer of a browser at a site, in which a passkey of the operator has signed the
// challenge.
func (s Store) signedBy(ctx context.Context, operator, answer string, at Site, c Challenge) (gatetask.Signature, error) {
	if len(answer) > maxAnswer {
		return gatetask.Signature{}, invalid("it is too long")
	}
	signed, err := read(answer)
	if err != nil {
		return signed, err
	}
	p, err := s.find(ctx, signed.Credential)
	if err != nil {
		return signed, err
	}
	if p.Operator != operator || p.Removed() {
		return signed, invalid("it is not a passkey of %s", operator)
	}
	if signed.Key, signed.Site = p.Key, p.Site; p.Site != at.ID {
		return signed, invalid("this passkey belongs to %s", p.Site)
	}
	return signed, check(signed, c, at.Origin)
}

// find returns a passkey. The error is [ErrInvalid] if the store does not have it.
func (s Store) find(ctx context.Context, id []byte) (Passkey, error) {
	r, err := s.Records.GetRecord(ctx, passkeys+digestOf(id))
	if errors.Is(err, task.ErrNotFound) {
		return Passkey{}, invalid("this passkey is not known here")
	}
	if err != nil {
		return Passkey{}, err
	}
	return decode(r)
}

// ToCreate returns the challenge for a new passkey of an operator with the given session.
func ToCreate(operator, session string) Challenge {
	return challenge(toCreate, []string{operator, session})
}

// ToAdd returns the challenge with which another passkey of the operator confirms a new one, given the
// browser's answer with the new one.
func ToAdd(operator, created string) Challenge {
	return challenge(toAdd, []string{operator, created})
}

// A Request is a request to add a passkey.
type Request struct {
	Operator string
	Session  string // as in [ToCreate]
	Site     Site
	Label    string
	Created  string // the browser's answer with the new passkey

	Code      string // of an invitation, or
	Confirmed string // the browser's answer for [ToAdd]
}

// Add adds a passkey. The error is [ErrNotInvited], [ErrInvalid] or [ErrTooMany] if it may not be added.
func (s Store) Add(ctx context.Context, q Request) error {
	if len(q.Created) > maxAnswer {
		return invalid("it is too long")
	}
	p, err := q.passkey()
	if err != nil {
		return err
	}
	all, err := s.All(ctx)
	if err != nil {
		return err
	}
	// Otherwise the journal would have another operator for the signatures of that passkey.
	//mutate:false TestAddedPasskeyIsNotAddedAgain the audit log says that a passkey belongs to another operator
	if slices.ContainsFunc(all, func(known Passkey) bool { return bytes.Equal(known.ID, p.ID) }) {
		return invalid("this passkey was added before")
	}
	own := len(slices.DeleteFunc(slices.Clone(all), func(p Passkey) bool { return p.Operator != q.Operator }))
	if own >= maxPasskeys || len(all) >= maxAll {
		return ErrTooMany
	}
	p.AddedAt, p.Label = s.Now().UTC(), safetext.Text(q.Label, maxLabel)
	if p.AddedBy, err = s.right(ctx, q, all); err != nil {
		return err
	}
	n := s.note(auditlog.PasskeyAdded, q.Operator, p)
	n.Outcome = p.AddedBy
	if err := s.Journal.Append(ctx, n); err != nil {
		return err
	}
	return s.put(ctx, p)
}

// passkey returns the new passkey of q, without the right to add it.
func (q Request) passkey() (Passkey, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(q.Created))
	if err != nil {
		return Passkey{}, invalid("it cannot be read")
	}
	_, err = parsed.Verify(ToCreate(q.Operator, q.Session).String(), q.Site.ID, []string{q.Site.Origin}, nil, nil, protocol.TopOriginExplicitVerificationMode,
		false, true, true, nil, parameters(), protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return Passkey{}, invalid("%s", reason(err))
	}
	data := parsed.Response.AttestationObject.AuthData.AttData
	return Passkey{ID: data.CredentialID, Key: data.CredentialPublicKey, Site: q.Site.ID, Operator: q.Operator}, nil
}

// right returns by whose right q may add a passkey, in words.
func (s Store) right(ctx context.Context, q Request, all []Passkey) (string, error) {
	if q.Code != "" {
		return s.redeem(ctx, q, all)
	}
	if q.Confirmed == "" {
		return "", ErrNotInvited
	}
	signed, err := s.signedBy(ctx, q.Operator, q.Confirmed, q.Site, ToAdd(q.Operator, q.Created))
	if err != nil {
		return "", err
	}
	return "confirmed by passkey " + digestOf(signed.Credential), nil
}

// An Invitation lets an operator add a passkey without another one.
type Invitation struct {
	Operator string    `json:"operator"` // the next operator who uses it, if empty
	By       string    `json:"by"`       // an administrator; empty for the first passkey of a site
	Expires  time.Time `json:"expires"`
	Passkey  string    `json:"passkey,omitzero"` // the [Passkey.Name] of the one that has confirmed it
}

// First returns the code of an invitation to add the first passkey of a site, or nothing if the site ever
// had one. Only the person who starts the gate may see the code.
func (s Store) First(ctx context.Context, site string, valid time.Duration) (string, error) {
	all, err := s.All(ctx)
	if err != nil || isUsedAt(all, site) {
		return "", err
	}
	return s.keep(ctx, Invitation{Expires: s.Now().Add(valid)})
}

// ToInvite returns the challenge with which an administrator confirms an invitation.
func ToInvite(i Invitation) Challenge {
	return challenge(toInvite, []string{i.Operator, i.By, i.Expires.UTC().Format(time.RFC3339)})
}

// maxInvitation is the longest time for which an invitation is valid.
const maxInvitation = 24 * time.Hour

// Invite returns the code of an invitation, which an administrator with a passkey has confirmed. Each
// confirmation counts once.
func (s Store) Invite(ctx context.Context, i Invitation, confirmed string, at Site) (string, error) {
	if left := i.Expires.Sub(s.Now()); left <= 0 || left > maxInvitation {
		return "", invalid("its time is over")
	}
	c := ToInvite(i)
	signed, err := s.signedBy(ctx, i.By, confirmed, at, c)
	if err != nil {
		return "", err
	}
	i.Passkey = digestOf(signed.Credential)
	used := gatestore.Record{Name: usedUp + digestOf(c), Version: 1, Value: []byte{'1'}, Expires: i.Expires}
	//mutate:swap "s.Records.PutRecord(ctx, used)" "error(nil)" TestInvitationOfAdministrator a confirmation makes several invitations
	if err := s.Records.PutRecord(ctx, used); errors.Is(err, task.ErrConcurrentModification) {
		return "", invalid("it was used before")
	} else if err != nil {
		return "", err
	}
	n := s.note(auditlog.PasskeyInvited, i.By, Passkey{Operator: i.Operator})
	if err := s.Journal.Append(ctx, n); err != nil {
		return "", err
	}
	return s.keep(ctx, i)
}

// keep stores an invitation under the digest of its code.
func (s Store) keep(ctx context.Context, i Invitation) (string, error) {
	code := rand.Text()
	text, err := json.Marshal(i)
	if err != nil {
		return "", err
	}
	return code, s.Records.PutRecord(ctx, gatestore.Record{Name: invitations + digestOf([]byte(code)), Version: 1, Value: text, Expires: i.Expires})
}

// counts reports whether who gave i may still do so, given all passkeys.
func (i Invitation) counts(all []Passkey, site string) bool {
	if i.By == "" {
		//mutate:true TestFirstPasskey a second start of the gate lets somebody add a passkey
		return !isUsedAt(all, site)
	}
	//mutate:true TestInvitationOfRemovedPasskey whoever had a stolen passkey adds others after it was removed
	return slices.ContainsFunc(all, func(p Passkey) bool { return p.Name() == i.Passkey && !p.Removed() })
}

// redeem uses up the invitation of q, and returns who gave it, in words.
func (s Store) redeem(ctx context.Context, q Request, all []Passkey) (string, error) {
	r, err := s.Records.GetRecord(ctx, invitations+digestOf([]byte(strings.TrimSpace(q.Code))))
	if errors.Is(err, task.ErrNotFound) {
		return "", ErrNotInvited
	}
	if err != nil {
		return "", err
	}
	var i Invitation
	if err := json.Unmarshal(r.Value, &i); err != nil {
		return "", err
	}
	//mutate:swap "r.Version > 1 || " "" TestFirstPasskey an invitation is used twice
	if r.Version > 1 || !s.Now().Before(i.Expires) || i.Operator != "" && i.Operator != q.Operator || !i.counts(all, q.Site.ID) {
		return "", ErrNotInvited
	}
	r.Version++
	if err := s.claim(ctx, r); err != nil {
		return "", err
	}
	if i.By == "" {
		first := gatestore.Record{Name: usedUp + digestOf([]byte("first at "+q.Site.ID)), Version: 1, Value: []byte{'1'}, Expires: s.Now().Add(time.Minute)}
		//mutate:swap "s.claim(ctx, first)" "error(nil)" TestTwoFirstPasskeys two starts of the gate let two people add the first passkey
		if err := s.claim(ctx, first); err != nil {
			return "", err
		}
		return "the first passkey, with the code that the gate showed when it started", nil
	}
	return "invited by " + i.By, nil
}

// claim stores a record. The error is [ErrNotInvited] if somebody else has done that.
func (s Store) claim(ctx context.Context, r gatestore.Record) error {
	err := s.Records.PutRecord(ctx, r)
	if errors.Is(err, task.ErrConcurrentModification) {
		return ErrNotInvited
	}
	return err
}

// isUsedAt reports whether a site ever had a passkey.
func isUsedAt(all []Passkey, site string) bool {
	return slices.ContainsFunc(all, func(p Passkey) bool { return p.Site == site })
}

// ToRemove returns the challenge with which an operator confirms the removal of a passkey.
func ToRemove(name, by string) Challenge { return challenge(toRemove, []string{name, by}) }

// Remove makes a passkey not count any more, after an operator has confirmed that with a passkey. The error is
// [ErrNoPasskey] if there is no such passkey, or if it was removed before, and [ErrLast] if it is the last one.
func (s Store) Remove(ctx context.Context, name, by, confirmed string, at Site) error {
	//mutate:drop TestRemovedPasskey a session removes passkeys
	if _, err := s.signedBy(ctx, by, confirmed, at, ToRemove(name, by)); err != nil {
		return err
	}
	all, err := s.All(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, Passkey.Removed)
	i := slices.IndexFunc(all, func(p Passkey) bool { return p.Name() == name })
	switch {
	case i < 0:
		return ErrNoPasskey
	case len(all) == 1:
		return ErrLast
	}
	p := all[i]
	p.RemovedAt, p.RemovedBy = s.Now().UTC(), by
	if err := s.put(ctx, p); err != nil {
		return err
	}
	// It counts no more even if the journal cannot be written.
	return s.Journal.Append(context.WithoutCancel(ctx), s.note(auditlog.PasskeyRemoved, by, p))
}

// note returns a note about a passkey.
func (s Store) note(step, actor string, p Passkey) task.Note {
	n := task.Note{At: s.Now(), Step: step, Actor: actor, Approver: p.Operator, Reason: p.Label}
	if p.ID != nil {
		n.Passkey = &gatetask.Signature{Credential: p.ID, Key: p.Key, Site: p.Site}
	}
	return n
}

// put stores the next version of p.
func (s Store) put(ctx context.Context, p Passkey) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return s.Records.PutRecord(ctx, gatestore.Record{Name: passkeys + p.Name(), Version: p.version + 1, Value: text})
}

func decode(r gatestore.Record) (p Passkey, err error) {
	err = json.Unmarshal(r.Value, &p)
	p.version = r.Version
	return p, err
}

// digestOf returns a short digest, which is unique.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
