package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A certificates holds how both listeners show who they are. A listener without
// TLS has none.
type certificates struct{ agents, operators *tls.Config }

// authorities returns those that sign the certificates of agents, or nil if
// certificates do not count.
func (c certificates) authorities() *x509.CertPool {
	if c.agents == nil {
		return nil
	}
	return c.agents.ClientCAs
}

// readCertificates reads the certificates that cfg names.
func readCertificates(cfg config.Config) (c certificates, err error) {
	if c.agents, err = serverTLS(cfg.ListenTLS, cfg.Identity.MTLS.CAFile); err != nil {
		return c, fmt.Errorf("listen for agents: %w", err)
	}
	if c.operators, err = serverTLS(cfg.Operators.TLS, ""); err != nil {
		return c, fmt.Errorf("listen for operators: %w", err)
	}
	return c, nil
}

// serverTLS returns how a listener shows who it is, and asks agents who they
// are; or nil if it does not.
func serverTLS(cfg config.Certificate, clients string) (*tls.Config, error) {
	if cfg.CertFile == "" {
		return nil, nil //nolint:nilnil // no TLS is no configuration of it
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
		return nil, errors.New("identity.mtls.ca_file: no certificate in it")
	}
	// A client without a certificate may show a token. If it does not, it gets a
	// proper answer.
	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}

func clientTLS(cfg config.TLS) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         cfg.ServerName,
		InsecureSkipVerify: cfg.InsecureSkipVerify, //nolint:gosec // off unless written in the configuration
	}
	if cfg.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.ca_file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.ca_file: no certificate in it")
	}
	return c, nil
}
