package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A signer is a certificate with its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign creates a certificate for key with this lifetime, signed by an authority, or self-signed
// without one.
func sign(t *testing.T, name string, key *ecdsa.PrivateKey, lasts time.Duration, by *signer) *signer {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{"bots"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		EmailAddresses: []string{name + "@example.com"},
	}
	if by == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		by = &signer{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{made, key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// connected returns a request on a connection that was opened while the agent's certificate was
// valid.
func connected(t *testing.T, agent, authority *signer) *http.Request {
	t.Helper()
	r := request(t, "")
	r.TLS = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{agent.cert}, VerifiedChains: [][]*x509.Certificate{{agent.cert, authority.cert}},
	}
	return r
}

func openFor(t *testing.T, authorities ...*signer) *fixture {
	t.Helper()
	return open(t, func(c *identity.Config) {
		c.Issuers, c.Certificate, c.Authorities = nil, identity.CommonName, x509.NewCertPool()
		for _, a := range authorities {
			c.Authorities.AddCert(a.cert)
		}
	})
}

// A certificate is valid on an open connection as long as on a new one: until it or its authority
// expires, or its authority is removed.
func TestCertificateExpiresOnOpenConnection(t *testing.T) {
	key := newKey(t)
	short, long := sign(t, "authority", key, 4*time.Minute, nil), sign(t, "authority", key, 9*time.Hour, nil)
	otherAuthority := sign(t, "authority", newKey(t), 9*time.Hour, nil)
	brief, lasting := sign(t, "ci", newKey(t), 2*time.Minute, short), sign(t, "cd", newKey(t), 9*time.Hour, short)
	tests := map[string]struct {
		gate  *fixture
		agent *signer
		after time.Duration
		want  string // the agent; empty if refused
	}{
		"before its end":                     {openFor(t, short), brief, time.Minute, "ci"},
		"after its end":                      {openFor(t, short), brief, 3 * time.Minute, ""},
		"before the authority's end":         {openFor(t, short), lasting, 3 * time.Minute, "cd"},
		"after the authority's end":          {openFor(t, short), lasting, 270 * time.Second, ""},
		"the authority has been renewed":     {openFor(t, long), lasting, 270 * time.Second, "cd"},
		"the authority is one of several":    {openFor(t, otherAuthority, short), brief, 0, "ci"},
		"the authority has been removed":     {openFor(t, otherAuthority), brief, 0, ""},
		"no authority, and not the system's": {openFor(t), brief, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.after > 0 { // the gate remembers it for up to 5 minutes
				if _, err := tt.gate.Authenticate(t.Context(), connected(t, tt.agent, short), identity.Resource{}); err != nil {
					t.Fatal(err)
				}
			}
			tt.gate.ahead.Store(int64(tt.after / time.Second))
			got, err := tt.gate.Authenticate(t.Context(), connected(t, tt.agent, short), identity.Resource{})
			if tt.want == "" {
				if e, ok := errors.AsType[*identity.Error](err); !ok || !strings.Contains(e.Reason, "expired") {
					t.Errorf("recognised %+v, %v", got, err)
				}
				return
			}
			want := identity.Agent{Principal: policy.Principal{ID: tt.want, Groups: []string{"bots"}, Aliases: []string{tt.want + "@example.com"}}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

// Without configured authorities, any public authority could sign a certificate.
func TestCertificatesNeedAuthorities(t *testing.T) {
	if _, err := identity.New(identity.Config{Now: time.Now, Certificate: identity.CommonName}); err == nil {
		t.Error("certificates are accepted without authorities")
	}
}

// A certificate with two names of a kind in its subject is refused, because pkix.Name keeps only
// the last one.
func TestCertificateWithTwoNamesIsRefused(t *testing.T) {
	authority := sign(t, "authority", newKey(t), time.Hour, nil)
	common, serial := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 5}
	named := func(kind asn1.ObjectIdentifier, names ...string) *signer {
		subject := pkix.Name{CommonName: "ci"}
		for _, name := range names {
			subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{Type: kind, Value: name})
		}
		key := newKey(t)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{"ci.example.com"},
		}, authority.cert, key.Public(), authority.key)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return &signer{made, key}
	}
	for _, field := range []identity.Field{identity.CommonName, identity.Subject, identity.DNSName} {
		gate := open(t, func(c *identity.Config) {
			c.Issuers, c.Certificate, c.Authorities = nil, field, x509.NewCertPool()
			c.Authorities.AddCert(authority.cert)
		})
		for name, tt := range map[string]struct {
			agent *signer
			fine  bool
		}{
			"one common name":    {named(common, "ci"), true},
			"two common names":   {named(common, "admin", "ci"), false},
			"one serial number":  {named(serial, "1"), true},
			"two serial numbers": {named(serial, "1", "2"), false},
		} {
			got, err := gate.Authenticate(t.Context(), connected(t, tt.agent, authority), identity.Resource{})
			if (err == nil) != tt.fine {
				t.Errorf("%s, recognised by %s: %+v, %v", name, field, got, err)
			}
		}
	}
}
