package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// certificate creates a certificate that is valid until a time, and its key, as PEM.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, about, about, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", private)
}

// A certificate that a listener cannot use is an error of the configuration. One that clients
// refuse is a warning.
func TestCertificateMustMatchKey(t *testing.T) {
	cert, key := certificate(t, time.Now().Add(time.Hour))
	_, other := certificate(t, time.Now().Add(time.Hour))
	expired, expiredKey := certificate(t, time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC))
	hidden := string(pem.EncodeToMemory(&pem.Block{Type: "hunter2", Bytes: []byte("hunter2")}))
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hunter2")}))
	for name, tt := range map[string]struct{ cert, key, problem, warning string }{
		"good":                       {cert: cert, key: key},
		"chain":                      {cert: cert + expired, key: key},
		"both in one file":           {cert: cert + key, key: cert + key},
		"key of another certificate": {cert: cert, key: other, problem: "key_file: cannot be used with cert_file: private key does not match public key"},
		"wrong order":                {cert: expired + cert, key: key, problem: "key_file: cannot be used with cert_file: private key does not match public key"},
		"no key":                     {cert: cert, key: "hunter2", problem: "key_file: cannot be used with cert_file: failed to find any PEM data in key input"},
		"empty key":                  {cert: cert, key: "", problem: "key_file: cannot be used with cert_file: failed to find any PEM data in key input"},
		"another kind of key":        {cert: cert, key: hidden, problem: `key_file: cannot be used with cert_file: failed to find PEM block with type ending in "PRIVATE KEY" in key input`},
		"broken key":                 {cert: cert, key: broken, problem: "key_file: cannot be used with cert_file: failed to parse private key"},
		"no certificate":             {cert: key, key: key, problem: "cert_file: has no certificate in PEM form"},
		"expired": {
			cert: expired, key: expiredKey,
			warning: "cert_file: the certificate expired at 2024-02-29T12:00:00Z: clients will refuse it",
		},
	} {
		for setting, form := range map[string]string{"listen_tls": "listen_tls: {FILES}\n", "operators.tls": "operators: {tls: {FILES}}\n"} {
			t.Run(setting+" "+name, func(t *testing.T) {
				file := write(t, "f.yaml", goodFile+strings.ReplaceAll(form, "FILES", "cert_file: cert.pem, key_file: key.pem"))
				for to, text := range map[string]string{"cert.pem": tt.cert, "key.pem": tt.key} {
					if err := os.WriteFile(filepath.Join(filepath.Dir(file), to), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				_, warnings, err := config.Load(config.Sources{Channels: kinds, File: file, Now: time.Now()})
				for what, found := range map[string]struct {
					want string
					got  []string
				}{"problem": {tt.problem, problemsOf(err)}, "warning": {tt.warning, lines(warnings)}} {
					if found.want == "" && len(found.got) == 0 {
						continue
					}
					if len(found.got) != 1 || found.want == "" || !strings.HasSuffix(found.got[0], ": "+setting+"."+found.want) {
						t.Errorf("%s: got %q, want %q", what, found.got, found.want)
					}
				}
			})
		}
	}
}

func problemsOf(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
