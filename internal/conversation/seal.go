package conversation

import (
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
)

// sealedPrefix marks what the gate sealed, so that it is never taken for
// something of an upstream's, nor the other way round.
const sealedPrefix = "tg1."

// A use is what a sealed text is for. It is good for nothing else.
type use string

const (
	useWait   use = "wait"   // to wait on for a call, in another request
	useResume use = "resume" // to take up the stream of a held call
	useList   use = "list"   // to get another page of tasks
	useInvite use = "invite" // to know the answer to an invitation by its id
)

// seal returns a text that only this client's owner can hand back, for one use,
// and that nobody else can read or change.
func (s *sender) seal(ctx context.Context, u use, text string) (string, error) {
	owner, _ := s.owner()
	sealed, err := s.hub.texts.Seal(ctx, text, string(u), owner)
	return sealedPrefix + sealed, err
}

// unseal returns the text that was sealed for the same use and owner, or
// [keyring.ErrForeign].
func (s *sender) unseal(ctx context.Context, u use, sealed string) (string, error) {
	encoded, ok := strings.CutPrefix(sealed, sealedPrefix)
	if !ok {
		return "", keyring.ErrForeign
	}
	owner, _ := s.owner()
	return s.hub.texts.Open(ctx, encoded, string(u), owner)
}

// IsSealed reports whether text claims to be sealed by the gate.
func IsSealed(text string) bool { return strings.HasPrefix(text, sealedPrefix) }
