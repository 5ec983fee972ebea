package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// certificates has the TLS settings of both listeners, which are nil without TLS.
type certificates struct{ agents, operators *tls.Config }

// authorities returns the authorities that sign the certificates of agents, or nil if
// certificates are not used.
func (c certificates) authorities() *x509.CertPool {
	if c.agents == nil {
		return nil
	}
	return c.agents.ClientCAs
}

// readCertificates reads the configured certificates.
func readCertificates(cfg config.Config) (c certificates, err error) {
	if c.agents, err = serverTLS(cfg.ListenTLS, cfg.Identity.MTLS.CAFile); err != nil {
		return c, fmt.Errorf("listen for agents: %w", err)
	}
	if c.operators, err = serverTLS(cfg.Operators.TLS, ""); err != nil {
		return c, fmt.Errorf("listen for operators: %w", err)
	}
	return c, nil
}

// serverTLS returns the TLS settings of a listener, or nil without TLS. With the file
// clients, which has certificate authorities, it also asks clients for certificates.
func serverTLS(cfg config.Certificate, clients string) (*tls.Config, error) {
	if cfg.CertFile == "" {
		return nil, nil // without TLS
	}
	cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cfg.CertFile, cfg.KeyFile, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	if clients == "" {
		return c, nil
	}
	pem, err := os.ReadFile(clients)
	if err != nil {
		return nil, fmt.Errorf("identity.mtls.ca_file: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("identity.mtls.ca_file: the file contains no certificate")
	}
	// A client without a certificate may send a token, or gets a JSON error.
	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}
