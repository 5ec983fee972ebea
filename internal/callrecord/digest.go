package callrecord

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// digestSize is the number of bytes of a digest. It is short, because digests are most of what
// cannot be compressed.
const digestSize = 16

// A digester makes digests of arguments with one key.
type digester struct {
	mac hash.Hash
	sum []byte // is used again
}

func newDigester(key []byte) *digester { return &digester{mac: hmac.New(sha256.New, key)} }

// digest returns the digest of arguments as the client has written them. Their canonical form would
// cost as much as the rest of an entry.
func (d *digester) digest(arguments []byte) string {
	d.mac.Reset()
	_, _ = d.mac.Write(arguments) // a hash never fails
	d.sum = d.mac.Sum(d.sum[:0])
	return hex.EncodeToString(d.sum[:digestSize])
}

// digest returns the digest of arguments that are too long to be copied. It is empty if the key
// is not available.
func (l *Log) digest(arguments []byte) string {
	key, err := l.cfg.Key(l.life)
	if err != nil {
		l.cfg.Log.Warn("call recorded without the digest of its arguments", "err", err)
		return ""
	}
	return newDigester(key).digest(arguments)
}
