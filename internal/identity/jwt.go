package identity

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// algorithms are the supported algorithms. All of them are asymmetric: with a shared key, every
// verifier could create tokens.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// An issuer verifies the tokens of an [Issuer].
type issuer struct {
	Issuer

	keys *keys
}

func newIssuer(i Issuer, c *Config) *issuer {
	i.ID, i.Groups = cmp.Or(i.ID, "sub"), cmp.Or(i.Groups, "groups")
	return &issuer{i, &keys{issuer: i, client: c.Client, now: c.Now}}
}

// A verifiedToken is the result of verifying a JWT.
type verifiedToken struct {
	principal policy.Principal
	until     time.Time
	audiences []string
	scopes    []string
	by        *issuer
}

// check verifies that the token is for a resource and has its scopes.
func (v verifiedToken) check(to Resource) *Error {
	//mutate:swap "to.URL != \"\" && a == to.URL" "a != \"\"" TestJWTIsForItsResource a token for another server is accepted
	isFor := func(a string) bool { return slices.Contains(v.by.Audiences, a) || to.URL != "" && a == to.URL }
	if !slices.ContainsFunc(v.audiences, isFor) {
		return invalidToken("it was issued for another audience", nil)
	}
	for _, scope := range to.Scopes {
		//mutate:false TestJWTNeedsScopes a token without the scopes is accepted
		if !slices.Contains(v.scopes, scope) {
			return &Error{Reason: "the token needs the scopes " + strings.Join(to.Scopes, " "), InsufficientScope: true, given: true}
		}
	}
	return nil
}

// maxToken is the maximum length of a JWT.
const maxToken = 16 << 10

func invalidToken(why string, cause error) *Error {
	return &Error{Reason: "invalid token: " + why, Cause: cause, given: true}
}

// issuers are the trusted issuers by URL.
type issuers map[string]*issuer

// verify verifies a token.
func (all issuers) verify(ctx context.Context, token string, now time.Time) (verifiedToken, *Error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return verifiedToken{}, errUnknown
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return verifiedToken{}, invalidToken("it is not a JWT with a supported signature", err)
	}
	var claimed Claims
	if err := json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claimed); err != nil {
		return verifiedToken{}, invalidToken("its claims cannot be read", err)
	}
	by, ok := all[claimed.Text("iss")]
	if !ok {
		return verifiedToken{}, invalidToken("its issuer is not known", nil)
	}
	if bad := by.verifySignature(ctx, signed); bad != nil {
		return verifiedToken{}, bad
	}
	return by.checkClaims(claimed, now) // claimed is the payload whose signature was verified
}

// verifySignature returns an error unless the issuer has signed the JWT.
func (i *issuer) verifySignature(ctx context.Context, signed *jose.JSONWebSignature) *Error {
	header := signed.Signatures[0].Protected
	if !isAccessToken(header) {
		return invalidToken("it is meant for another purpose", nil)
	}
	keys, err := i.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return err
	}
	for _, key := range keys {
		// Only the issuer's keys count, not one that is embedded in the token.
		if _, err := signed.Verify(key.Key); err == nil {
			return nil
		}
	}
	return invalidToken("its signature is wrong", nil)
}

// isAccessToken reports whether the type in the header allows the token for authentication.
func isAccessToken(h jose.Header) bool {
	typ, given := h.ExtraHeaders["typ"]
	if !given {
		return true
	}
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "jwt" || text == "at+jwt"
}

// checkClaims verifies that the claims are those of an agent, and valid now.
func (i *issuer) checkClaims(c Claims, now time.Time) (verifiedToken, *Error) {
	expires, ok := c.time("exp")
	if !ok {
		return verifiedToken{}, invalidToken("it has no expiry time", nil)
	}
	until := expires.Add(i.Skew)
	if !now.Before(until) {
		return verifiedToken{}, invalidToken("it has expired", nil)
	}
	for _, name := range []string{"nbf", "iat"} {
		if _, given := c[name]; !given {
			continue
		}
		if from, ok := c.time(name); !ok || now.Add(i.Skew).Before(from) {
			return verifiedToken{}, invalidToken("it is not valid yet", nil)
		}
	}
	if _, bound := c["cnf"]; bound {
		return verifiedToken{}, invalidToken("it is bound to a key, and the agent did not prove that it has the key", nil)
	}
	name := c.Text(i.ID)
	if name == "" {
		return verifiedToken{}, invalidToken("it has no claim "+i.ID, nil)
	}
	if i.ID == "email" && !c.emailVerified() {
		return verifiedToken{}, invalidToken("its e-mail address is not verified", nil)
	}
	return verifiedToken{
		principal: policy.Principal{
			ID: i.Prefix + name, Groups: c.Texts(i.Groups),
			Aliases: Aliases(i.Prefix+name, name, c.Text("sub"), c.Text("email"), c.Text("preferred_username"), c.Text("upn"), c.Text("act.sub")),
		},
		until: until, audiences: c.Texts("aud"), scopes: c.scopes(), by: i,
	}, nil
}

// scopes returns the scopes of a token. Some issuers have them in scp, as a text or as a list.
func (c Claims) scopes() []string {
	return strings.Fields(c.Text("scope") + " " + strings.Join(c.Texts("scp"), " "))
}

// Claims are the claims of a JWT, or of another document of an issuer.
type Claims map[string]jsontext.Value

// UnmarshalJSON implements [json.Unmarshaler]. It rejects duplicate names.
func (c *Claims) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*map[string]jsontext.Value)(c))
}

// find returns a claim by name, or by a path of names with dots between them.
func (c Claims) find(name string) jsontext.Value {
	if v, ok := c[name]; ok {
		return v
	}
	outer, rest, deeper := strings.Cut(name, ".")
	var inner Claims
	if !deeper || c[outer].Kind() != '{' || json.Unmarshal(c[outer], &inner) != nil {
		return nil
	}
	return inner.find(rest)
}

// Text returns a string claim, or an empty string.
func (c Claims) Text(name string) string {
	var s string
	if v := c.find(name); v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// Texts returns a claim that is a string or a list of strings.
func (c Claims) Texts(name string) []string {
	var all []string
	if one := c.Text(name); one != "" {
		return []string{one}
	}
	if v := c.find(name); v.Kind() != '[' || json.Unmarshal(v, &all) != nil {
		return nil
	}
	return all
}

// IsTrue reports whether a claim is the boolean true.
func (c Claims) IsTrue(name string) bool { return c.find(name).Kind() == 't' }

// emailVerified reports whether the issuer has verified the address. Some issuers send a string.
func (c Claims) emailVerified() bool {
	return c.IsTrue("email_verified") || c.Text("email_verified") == "true"
}

// maxUnixTime is the latest time in a claim, in the year 9999.
const maxUnixTime = 253402300799

// time returns a claim that is a number of seconds since 1970.
func (c Claims) time(name string) (time.Time, bool) {
	var seconds float64
	if v := c[name]; v.Kind() != '0' || json.Unmarshal(v, &seconds) != nil || !(math.Abs(seconds) <= maxUnixTime) {
		return time.Time{}, false
	}
	return time.Unix(int64(math.Floor(seconds)), 0), true
}

// Aliases returns the distinct names other than id.
func Aliases(id string, names ...string) []string {
	var others []string
	for _, other := range names {
		if other != "" && other != id && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others
}
