package gate

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// digestForm stands in front of digests of definitions. It says what the digest
// was made of, so that digests which were made otherwise are not compared. Those
// without a form are of the bytes that the upstream sent.
const digestForm = "v2-"

// DigestText returns the digest of the definition as text, or nothing if the
// tool was never listed.
func (t Tool) DigestText() string {
	if t.Digest == ([sha256.Size]byte{}) {
		return ""
	}
	return digestForm + hex.EncodeToString(t.Digest[:])
}

// digestOf returns the digest of a tool's definition in its canonical form,
// without the members that change nothing for an approver: how the tool can be
// run, how it looks, and metadata. All other members count, also those that this
// version of the gate does not know. A definition that has no canonical form, or
// is so large that making it costs too much memory, is digested as it was sent.
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
