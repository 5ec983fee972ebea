package identity

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Algorithms returns the algorithms that there are. All of them are signatures
// with a key that only the issuer has: with a shared one, whoever can verify a
// token could make it.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// An issuer verifies the tokens of an [Issuer].
type issuer struct {
	Issuer

	algorithms []jose.SignatureAlgorithm
	keys       *keys
}

func newIssuer(i Issuer, c *Config) (*issuer, error) {
	if len(i.Algorithms) == 0 {
		i.Algorithms = Algorithms()
	}
	made := &issuer{Issuer: i, keys: newKeys(i, c)}
	for _, name := range i.Algorithms {
		if !slices.Contains(Algorithms(), name) {
			return nil, fmt.Errorf("identity: there is no algorithm %q", name)
		}
		made.algorithms = append(made.algorithms, jose.SignatureAlgorithm(name))
	}
	if made.ID == "" {
		made.ID = "sub"
	}
	if made.Groups == "" {
		made.Groups = "groups"
	}
	return made, nil
}

// A verified is what a JWT proves.
type verified struct {
	principal policy.Principal
	until     time.Time
}

// maxToken is how long a JWT may be.
const maxToken = 16 << 10

func badToken(why string, cause error) *Error {
	return &Error{Reason: "invalid token: " + why, Cause: cause, given: true}
}

// issuers are the issuers that are believed, by their URLs.
type issuers map[string]*issuer

// verify returns what a token proves.
func (all issuers) verify(ctx context.Context, token string, now time.Time) (verified, *Error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return verified{}, errNotKnown
	}
	algorithms := make([]jose.SignatureAlgorithm, 0, len(Algorithms()))
	for _, name := range Algorithms() {
		algorithms = append(algorithms, jose.SignatureAlgorithm(name))
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return verified{}, badToken("it is not a JWT with a signature that is accepted", err)
	}
	claimed, err := readClaims(signed.UnsafePayloadWithoutVerification())
	if err != nil {
		return verified{}, badToken("its claims cannot be read", err)
	}
	by, ok := all[claimed.text("iss")]
	if !ok {
		return verified{}, badToken("its issuer is not known", nil)
	}
	payload, bad := by.verifySignature(ctx, signed)
	if bad != nil {
		return verified{}, bad
	}
	c, err := readClaims(payload)
	if err != nil {
		return verified{}, badToken("its claims cannot be read", err)
	}
	return by.judge(c, now)
}

// verifySignature returns the payload of a JWT that the issuer signed.
func (i *issuer) verifySignature(ctx context.Context, signed *jose.JSONWebSignature) ([]byte, *Error) {
	header := signed.Signatures[0].Protected
	if !slices.Contains(i.algorithms, jose.SignatureAlgorithm(header.Algorithm)) {
		return nil, badToken("its algorithm is not accepted", nil)
	}
	if !accessType(header) {
		return nil, badToken("it is meant for another purpose", nil)
	}
	keys, err := i.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		// The keys are the issuer's: one that is embedded in the token is not
		// looked at.
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, badToken("its signature is wrong", nil)
}

// accessType reports whether a token is one by which somebody may be recognised,
// going by what it says of itself.
func accessType(h jose.Header) bool {
	typ, given := h.ExtraHeaders["typ"]
	if !given {
		return true
	}
	text, _ := typ.(string)
	switch strings.TrimPrefix(strings.ToLower(text), "application/") {
	case "jwt", "at+jwt":
		return true
	default:
		return false
	}
}

// judge returns what claims say if they are meant for the gate, and now.
func (i *issuer) judge(c claims, now time.Time) (verified, *Error) {
	expires, ok := c.time("exp")
	if !ok {
		return verified{}, badToken("it has no expiry time", nil)
	}
	until := expires.Add(i.Skew)
	if !now.Before(until) {
		return verified{}, badToken("it has expired", nil)
	}
	for _, name := range []string{"nbf", "iat"} {
		if _, given := c[name]; !given {
			continue
		}
		if from, ok := c.time(name); !ok || now.Add(i.Skew).Before(from) {
			return verified{}, badToken("it is not valid yet", nil)
		}
	}
	if !slices.ContainsFunc(c.texts("aud"), func(a string) bool { return slices.Contains(i.Audiences, a) }) {
		return verified{}, badToken("it was issued for another audience", nil)
	}
	if _, bound := c["cnf"]; bound {
		return verified{}, badToken("it is bound to a key, and the agent did not prove that it has the key", nil)
	}
	name := c.text(i.ID)
	if name == "" {
		return verified{}, badToken("it has no claim "+i.ID, nil)
	}
	if i.ID == "email" && !c.isTrue("email_verified") {
		return verified{}, badToken("its e-mail address is not verified", nil)
	}
	return verified{
		principal: policy.Principal{ID: i.Prefix + name, Groups: c.texts(i.Groups), Aliases: c.aliases(i.Prefix+name, name)},
		until:     until,
	}, nil
}

// claims are the members of a JWT.
type claims map[string]jsontext.Value

// readClaims refuses names that are given twice.
func readClaims(payload []byte) (claims, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, err
	}
	return c, nil
}

// find returns a claim by its name, or else by its path: names that stand in
// each other, with dots between.
func (c claims) find(name string) jsontext.Value {
	if v, ok := c[name]; ok {
		return v
	}
	outer, rest, deeper := strings.Cut(name, ".")
	if !deeper || c[outer].Kind() != '{' {
		return nil
	}
	inner, err := readClaims(c[outer])
	if err != nil {
		return nil
	}
	return inner.find(rest)
}

// text returns a claim that is a text, or nothing.
func (c claims) text(name string) string {
	var s string
	if v := c.find(name); v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// texts returns a claim that is a text, or a list of them.
func (c claims) texts(name string) []string {
	var all []string
	if one := c.text(name); one != "" {
		return []string{one}
	}
	if v := c.find(name); v.Kind() != '[' || json.Unmarshal(v, &all) != nil {
		return nil
	}
	return all
}

func (c claims) isTrue(name string) bool { return c.find(name).Kind() == 't' || c.text(name) == "true" }

// farthest is the latest time that a claim may name, in the year 9999.
const farthest = 253402300799

// time returns a claim that is a number of seconds since 1970.
func (c claims) time(name string) (time.Time, bool) {
	var seconds float64
	if v := c[name]; v.Kind() != '0' || json.Unmarshal(v, &seconds) != nil || !(math.Abs(seconds) <= farthest) {
		return time.Time{}, false
	}
	return time.Unix(int64(math.Floor(seconds)), 0), true
}

// aliases returns the other names by which a person might be known whose id is
// made of name.
func (c claims) aliases(id, name string) []string {
	var others []string
	add := func(other string) {
		if other != "" && other != id && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	add(name)
	for _, claim := range []string{"sub", "email", "preferred_username", "upn", "act.sub"} {
		add(c.text(claim))
	}
	return others
}
