package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// digestForm is the version prefix of digests. Digests with different prefixes are not compared.
// Digests without a prefix are of the bytes that the upstream sent.
const digestForm = "v2-"

// DigestText returns the digest of the definition as text, or "" if the tool was never listed.
func (t Tool) DigestText() string {
	if t.Digest == ([sha256.Size]byte{}) {
		return ""
	}
	return digestForm + hex.EncodeToString(t.Digest[:])
}

// digestOf returns the digest of a tool's definition in canonical form, without the members that
// do not matter to approvers: execution, icons and metadata. All other members count, also
// unknown ones. A definition without a canonical form, or one that is too large, is digested as
// received.
func digestOf(entry jsonrpc.Value) [sha256.Size]byte {
	if len(entry.Bytes) > maxText {
		return sha256.Sum256(entry.Bytes)
	}
	form, ok := entry.AppendCanonical(make([]byte, 0, len(entry.Bytes)), "execution", "icons", "_meta")
	if !ok {
		form = entry.Bytes
	}
	return sha256.Sum256(form)
}

// shapeOf returns the digest of the parts of a definition that must not change unnoticed, besides
// the hints: the title, the schemas, and unknown members. The description does not count, because
// servers write changing text such as the date into it.
func shapeOf(entry jsonrpc.Value, title string) string {
	form, ok := []byte(nil), false
	if len(entry.Bytes) <= maxText {
		form, ok = entry.AppendCanonical(make([]byte, 0, len(entry.Bytes)), "annotations", "description", "execution", "icons", "_meta")
	}
	if !ok {
		form = entry.Bytes
	}
	sum := sha256.Sum256(append(append(slices.Clip(form), '\n'), title...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
