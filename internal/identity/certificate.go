package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// byCertificate authenticates the certificate of a connection. The TLS listener has verified it,
// but a connection lasts: meanwhile the certificate may have expired, or its authority may have
// been removed.
func (i *Authenticator) byCertificate(r *http.Request) (Agent, *Error) {
	if i.cfg.Certificate == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return Agent{}, errNoCredentials
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return Agent{}, errNotTrusted // unreachable: the listener requires a verified chain
	}
	shown, now := r.TLS.PeerCertificates, i.cfg.Now()
	hash := Hash(sha256.Sum256(shown[0].Raw))
	if agent, ok := i.certificates.get(hash, now); ok {
		return agent, nil
	}
	until, err := i.verify(shown, now)
	if err != nil {
		return Agent{}, &Error{Reason: "the certificate has expired, or its authority is not accepted any more", Cause: err, given: true}
	}
	if hasAmbiguousSubject(shown[0]) {
		return Agent{}, errAmbiguousSubject
	}
	agent := Agent{Principal: principalOf(shown[0], i.cfg.Certificate)}
	if agent.Principal.ID == "" {
		return Agent{}, errNoName
	}
	i.certificates.put(hash, agent, until, now)
	return agent, nil
}

// verify verifies a certificate with the intermediates that were sent with it, and returns when the
// chain expires.
func (i *Authenticator) verify(shown []*x509.Certificate, now time.Time) (until time.Time, err error) {
	others := x509.NewCertPool()
	for _, c := range shown[1:] {
		others.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		//mutate:swap "now" "shown[0].NotBefore" TestCertificateExpiresOnOpenConnection an expired certificate is accepted
		Roots: i.cfg.Authorities, Intermediates: others, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, err
	}
	first := slices.MinFunc(chains[0], func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return first.NotAfter, nil
}

// hasAmbiguousSubject reports whether the subject has several common names or serial numbers.
// pkix.Name keeps only the last of them, while other programs may use the first.
func hasAmbiguousSubject(c *x509.Certificate) bool {
	count := make(map[string]int)
	for _, attribute := range c.Subject.Names {
		count[attribute.Type.String()]++
	}
	//mutate:swap `count["2.5.4.3"] > 1 || ` "" TestCertificateWithTwoNamesIsRefused the last of two common names counts
	return count["2.5.4.3"] > 1 || count["2.5.4.5"] > 1
}

// principalOf returns the principal in a field of a certificate. Its ID is empty if the field has
// no single value.
func principalOf(c *x509.Certificate, f Field) policy.Principal {
	p := policy.Principal{ID: fieldValue(c, f), Groups: c.Subject.OrganizationalUnit}
	p.Aliases = slices.DeleteFunc(append([]string{c.Subject.CommonName}, c.EmailAddresses...), func(other string) bool {
		return other == "" || other == p.ID
	})
	return p
}

// fieldValue returns the only value of a field, or "" if the field has no value or several. It
// does not detect several common names: see hasAmbiguousSubject.
func fieldValue(c *x509.Certificate, f Field) string {
	var values []string
	switch f {
	case CommonName:
		values = []string{c.Subject.CommonName}
	case Subject:
		values = []string{c.Subject.String()}
	case DNSName:
		values = c.DNSNames
	case Email:
		values = c.EmailAddresses
	case URI:
		for _, u := range c.URIs {
			values = append(values, u.String())
		}
	}
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
