package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// byCertificate recognises the certificate of a connection. The listener has
// verified it, but a connection lasts: since then the certificate may have expired,
// and its authority may have been removed.
func (i *Recogniser) byCertificate(r *http.Request) (Agent, *Error) {
	if i.cfg.Certificate == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return Agent{}, errNothing
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return Agent{}, errNotTrusted // the listener should not have let it in
	}
	shown, now := r.TLS.PeerCertificates, i.cfg.Now()
	hash := bearer.Hash(sha256.Sum256(shown[0].Raw))
	if agent, ok := i.certificates.get(hash, now); ok {
		return agent, nil
	}
	until, err := i.verify(shown, now)
	if err != nil {
		return Agent{}, badCertificate(err)
	}
	agent := Agent{Principal: principalOf(shown[0], i.cfg.Certificate)}
	if agent.Principal.ID == "" {
		return Agent{}, errNoName
	}
	i.certificates.put(hash, agent, until, now)
	return agent, nil
}

// verify verifies a certificate, with those that were shown after it, and returns
// until when it is good.
func (i *Recogniser) verify(shown []*x509.Certificate, now time.Time) (until time.Time, err error) {
	others := x509.NewCertPool()
	for _, c := range shown[1:] {
		others.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		Roots: i.cfg.Authorities, Intermediates: others, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, err
	}
	first := slices.MinFunc(chains[0], func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return first.NotAfter, nil
}

// principalOf returns the agent that a field of a certificate names. Its id is empty
// if the field names none.
func principalOf(c *x509.Certificate, f Field) policy.Principal {
	p := policy.Principal{ID: nameIn(c, f), Groups: c.Subject.OrganizationalUnit}
	p.Aliases = slices.DeleteFunc(append([]string{c.Subject.CommonName}, c.EmailAddresses...), func(other string) bool {
		return other == "" || other == p.ID
	})
	return p
}

// nameIn returns what a field says, if it says one thing.
func nameIn(c *x509.Certificate, f Field) string {
	var names []string
	switch f {
	case CommonName:
		names = []string{c.Subject.CommonName}
	case Subject:
		names = []string{c.Subject.String()}
	case DNSName:
		names = c.DNSNames
	case Email:
		names = c.EmailAddresses
	case URI:
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	}
	if len(names) != 1 {
		return ""
	}
	return names[0]
}
