package mcphttp

import (
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
)

// sealedPrefix marks what the gate sealed, so that it is never taken for
// something of an upstream's, nor the other way round.
const sealedPrefix = "tg1."

// seal returns a text that only this owner can hand back, for one use, and that
// nobody else can read or change.
func (x *exchange) seal(ctx context.Context, use, owner, text string) (string, error) {
	sealed, err := x.h.texts.Seal(ctx, text, use, owner)
	return sealedPrefix + sealed, err
}

// unseal returns the text that was sealed for the same use and owner, or
// [keyring.ErrForeign].
func (x *exchange) unseal(ctx context.Context, use, owner, sealed string) (string, error) {
	encoded, ok := strings.CutPrefix(sealed, sealedPrefix)
	if !ok {
		return "", keyring.ErrForeign
	}
	return x.h.texts.Open(ctx, encoded, use, owner)
}

// isSealed reports whether text claims to be sealed by the gate.
func isSealed(text string) bool { return strings.HasPrefix(text, sealedPrefix) }
