// Package passkey keeps the passkeys of operators and checks what they sign.
//
// An operator signs a [gatetask.Statement] about a held call, and the gate stores the
// [gatetask.Signature] with the decision. The challenge of the passkey is a digest of the statement,
// so a signature counts for one decision of one operator only, and no secret of the gate is
// needed to check it: [Check] does so before the decision counts, before the call runs, and when
// the audit log is verified.
//
// A [Store] has the passkeys. A passkey is added with an invitation, or with the signature of
// another passkey of the same operator. Passkeys that were removed stay in the store, so the
// signatures that they made can be explained, and so that removing all of them does not make a first
// passkey possible again.
package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// ErrInvalid is the error of a signature that does not count.
var ErrInvalid = errors.New("the signature of the passkey does not count")

func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, a...)...)
}

// A Site is the gate as browsers know it.
type Site struct {
	Origin string // such as https://gate.example.com or http://localhost:8081
	ID     string // the relying party: the name of its host
}

// SiteAt returns the site of the given origin. Browsers allow passkeys for names of hosts, over TLS or
// on localhost.
func SiteAt(origin *url.URL) (Site, error) {
	host := strings.ToLower(origin.Hostname()) // as browsers write it
	_, notName := netip.ParseAddr(host)
	switch {
	case host == "" || notName == nil:
		return Site{}, fmt.Errorf("browsers do not allow passkeys at an address such as %s", origin.Host)
	case origin.Scheme != "https" && host != "localhost":
		return Site{}, errors.New("browsers allow passkeys only over https, or at localhost")
	}
	return Site{Origin: origin.Scheme + "://" + origin.Host, ID: host}, nil
}

// A Challenge is what a passkey signs.
type Challenge []byte

// String returns c as browsers have it.
func (c Challenge) String() string { return base64.RawURLEncoding.EncodeToString(c) }

// The purposes of a challenge. They are part of it.
const (
	toApprove = "approval"
	toCreate  = "creation"
	toAdd     = "addition"
	toInvite  = "invitation"
	toRemove  = "removal"
)

// challenge returns the challenge for values and their purpose.
func challenge(purpose string, about any) Challenge {
	text, err := json.Marshal(about, json.Deterministic(true), jsontext.AllowInvalidUTF8(true)) // forms can have any bytes
	if err != nil {
		panic(err) // the types of this package can always be encoded
	}
	sum := sha256.Sum256(append([]byte("thoughtgate "+purpose+" 1\n"), text...))
	return sum[:]
}

// ToApprove returns the challenge of an approver.
func ToApprove(s gatetask.Statement) Challenge { return challenge(toApprove, s) }

// read reads the answer of a browser with a signature.
func read(answer string) (gatetask.Signature, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err != nil {
		return gatetask.Signature{}, invalid("it cannot be read")
	}
	r := parsed.Raw.AssertionResponse
	return gatetask.Signature{Credential: parsed.RawID, Client: r.ClientDataJSON, Auth: r.AuthenticatorData, Signature: r.Signature}, nil
}

// Check returns [ErrInvalid] unless the key of the signature has signed its statement, for its
// site, after the user was verified.
func Check(s gatetask.Signature) error { return check(s, ToApprove(s.Statement), "") }

// check returns [ErrInvalid] unless the key of s has signed the challenge. If origin is empty, any origin
// of the site counts.
func check(s gatetask.Signature, c Challenge, origin string) error {
	id := base64.RawURLEncoding.EncodeToString(s.Credential)
	parsed, err := protocol.CredentialAssertionResponse{
		PublicKeyCredential: protocol.PublicKeyCredential{
			Credential: protocol.Credential{ID: id, Type: string(protocol.PublicKeyCredentialType)}, RawID: s.Credential,
		},
		AssertionResponse: protocol.AuthenticatorAssertionResponse{
			AuthenticatorResponse: protocol.AuthenticatorResponse{ClientDataJSON: s.Client}, AuthenticatorData: s.Auth, Signature: s.Signature,
		},
	}.Parse()
	if err != nil {
		return invalid("it cannot be read")
	}
	signed := parsed.Response.CollectedClientData.Origin
	if origin == "" && isAt(signed, s.Site) {
		origin = signed
	}
	//mutate:swap "true, true, s.Key" "false, true, s.Key" TestUserMustBeVerified a passkey counts although its user was not verified
	err = parsed.Verify(c.String(), s.Site, "", []string{origin}, nil, nil, protocol.TopOriginExplicitVerificationMode, false, true, true, s.Key, protocol.SignaturePolicy{})
	if err != nil {
		return invalid("%s", reason(err))
	}
	return nil
}

// reason returns what is wrong with an answer of a browser.
func reason(err error) string {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return strings.ToLower(e.Details[:1]) + e.Details[1:]
	}
	return "it cannot be verified"
}

// isAt reports whether an origin belongs to a site.
func isAt(origin, site string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	at, err := SiteAt(u)
	return err == nil && at.ID == site
}

// Equal reports whether two statements are the same.
func Equal(a, b gatetask.Statement) bool { return bytes.Equal(ToApprove(a), ToApprove(b)) }

// timeout is how long a browser asks for a passkey.
const timeout = 2 * time.Minute

// Creation returns what a browser needs to create a passkey for an operator who has the given ones.
func (at Site) Creation(operator string, c Challenge, own []Passkey) any {
	user := sha256.Sum256([]byte("thoughtgate operator\n" + operator))
	return protocol.PublicKeyCredentialCreationOptions{
		RelyingParty: protocol.RelyingPartyEntity{CredentialEntity: protocol.CredentialEntity{Name: "ThoughtGate"}, ID: at.ID},
		User: protocol.UserEntity{
			CredentialEntity: protocol.CredentialEntity{Name: operator}, DisplayName: operator, ID: protocol.URLEncodedBase64(user[:]),
		},
		Challenge: protocol.URLEncodedBase64(c), Parameters: parameters(), Timeout: int(timeout.Milliseconds()),
		CredentialExcludeList: at.descriptors(own),
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			UserVerification: protocol.VerificationRequired, ResidentKey: protocol.ResidentKeyRequirementPreferred,
		},
		Attestation: protocol.PreferNoAttestation,
	}
}

// Signing returns what a browser needs to sign a challenge with one of the given passkeys. The error is
// [ErrNoPasskey] if none of them belongs to the site.
func (at Site) Signing(c Challenge, own []Passkey) (any, error) {
	here := at.descriptors(own)
	if len(here) == 0 {
		return nil, ErrNoPasskey
	}
	return protocol.PublicKeyCredentialRequestOptions{
		Challenge: protocol.URLEncodedBase64(c), RelyingPartyID: at.ID, AllowedCredentials: here,
		UserVerification: protocol.VerificationRequired, Timeout: int(timeout.Milliseconds()),
	}, nil
}

// descriptors returns the passkeys that belong to the site, as browsers have them.
func (at Site) descriptors(all []Passkey) (here []protocol.CredentialDescriptor) {
	for _, p := range all {
		if p.Site == at.ID {
			here = append(here, protocol.CredentialDescriptor{Type: protocol.PublicKeyCredentialType, CredentialID: p.ID})
		}
	}
	return here
}

// parameters returns the kinds of keys that the gate can check.
func parameters() (all []protocol.CredentialParameter) {
	for _, alg := range []webauthncose.COSEAlgorithmIdentifier{webauthncose.AlgES256, webauthncose.AlgEdDSA, webauthncose.AlgRS256} {
		all = append(all, protocol.CredentialParameter{Type: protocol.PublicKeyCredentialType, Algorithm: alg})
	}
	return all
}
