package channel

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Press is a press of a button of a message about a call. Its text is the data of the
// button.
type Press struct {
	Decision approval.Decision
	ID       task.ID
	shown    string // see mark
}

// NewPress returns the press of the button for a decision in a message that shows a.
func NewPress(d approval.Decision, a review.Approval) Press {
	return Press{Decision: d, ID: a.ID, shown: mark(a.ShownDigest)}
}

// letters are the decisions in data of buttons.
var letters = map[approval.Decision]string{approval.Approve: "a", approval.Reject: "r"}

// markLength is the length of a mark, which has 132 bits.
const markLength = 22

// mark returns a short text that identifies the digest of what a message shows. Telegram
// allows 64 bytes for the data of a button.
func mark(digest string) string {
	sum := sha256.Sum256([]byte(digest))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:markLength]
}

// String returns the data of the button. It has at most 64 bytes.
func (p Press) String() string { return letters[p.Decision] + p.shown + string(p.ID) }

// ParsePress returns the press of a button with the data, and whether it is one of the
// gate's buttons.
func ParsePress(data string) (Press, bool) {
	if len(data) <= 1+markLength {
		return Press{}, false
	}
	p := Press{shown: data[1 : 1+markLength], ID: task.ID(data[1+markLength:])}
	for d, letter := range letters {
		if strings.HasPrefix(data, letter) {
			p.Decision = d
		}
	}
	return p, p.Decision != "" && p.ID.Own()
}

// An Account is an account that pressed a button in a chat.
type Account struct {
	Chat      string // the kind of chat, such as discord
	ID        string
	Bot       bool
	Elsewhere bool              // the button is not in the configured channel
	People    map[string]string // the names of approvers by the ids of their accounts
	Reason    string            // of a rejection
}

// Refusal returns the text that tells why a press of the button with the data does not count, or
// "".
func (a Account) Refusal(data string) string {
	_, ours := ParsePress(data)
	switch {
	case !ours || a.Bot:
		return "The gate does not know this button."
	case a.Elsewhere:
		return "Your decision does not count: the gate takes no decisions in this chat. Decide in the inbox."
	case a.People[a.ID] == "":
		return "Your decision does not count: you are not set up as an approver: ask the administrator of the gate"
	default:
		return ""
	}
}

// Press records the decision of the person who pressed the button with the data. It returns the
// text to tell them, or "" if the message will show the decision.
func (g Gate) Press(ctx context.Context, by Account, data string) string {
	if told := by.Refusal(data); told != "" {
		return told
	}
	p, _ := ParsePress(data)
	r := approval.Ruling{
		Decision: p.Decision, Reason: by.Reason, Via: gatetask.Via{Kind: gatetask.ViaChannel, Channel: g.Channel, Account: by.ID},
	}
	if p.Decision == approval.Approve {
		var err error
		//mutate:swap "mark(r.Shown) != p.shown" "p.shown == \"\"" internal/channel/discord.TestDiscord a call that differs from the message is approved
		if r.Shown, err = g.Shown(ctx, p.ID); err == nil && mark(r.Shown) != p.shown {
			err = review.ErrViewChanged
		}
		if err != nil {
			return "Your decision does not count: " + g.Explain(err)
		}
	}
	who := approval.Approver{Name: by.People[by.ID], Roles: []string{"approver"}, Aliases: []string{by.Chat + ":" + by.ID}}
	return g.DecideFor(ctx, p.ID, who, r)
}

// DecideFor records a decision that was made in a chat. It returns the text to tell the
// person, or "" if the message will show the decision.
func (g Gate) DecideFor(ctx context.Context, id task.ID, who approval.Approver, r approval.Ruling) string {
	after, err := g.Decide(ctx, id, who, r)
	switch {
	case errors.Is(err, approval.ErrUnsure):
		return "It is not known whether your decision counts: " + g.Explain(err)
	case err != nil && ctx.Err() != nil:
		return "The gate did not have time to check whether your decision counts. Look at the call in the inbox."
	case err != nil:
		return "Your decision does not count: " + g.Explain(err)
	case after.State == task.InputRequired:
		return fmt.Sprintf("Your approval is recorded: %d of %d approvals.", len(after.Approval.Approvals), after.Approval.Quorum)
	default:
		return ""
	}
}
