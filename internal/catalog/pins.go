package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/internal/toolpin"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// pin returns the digest of a tool for comparison with the lock file of p, or "" if its definition
// is not known for certain, and whether an operator has accepted that definition.
func (g *Catalog) pin(p *policy.Snapshot, c Client, listed Tool) (digest string, accepted bool) {
	if !p.HasPins() || listed.several {
		return "", false
	}
	digest = listed.DigestText()
	r, known := g.histories.get(c.source(), listed.Name)
	return digest, known && digest != "" && slices.Contains(r.history.Known, digest)
}

// isPinned reports whether a tool is as the lock file or an operator says. Then its hints count.
func (g *Catalog) isPinned(c Client, listed Tool) bool {
	p := g.settings.Load().Policy
	digest, accepted := g.pin(p, c, listed)
	return accepted || p.Pinned(c.Upstream, listed.Name, digest)
}

// Limits on the shown difference between a tool and the lock file.
const (
	maxDiffLines = 60
	maxDiff      = 2 << 10
	maxMembers   = 5
)

// unpinned describes how a tool deviates from the lock file.
func (g *Catalog) unpinned(c Client, listed Tool, name string) toolhistory.UnpinnedChange {
	pinned := g.settings.Load().Pins[c.Upstream][name]
	change := toolhistory.UnpinnedChange{Digest: listed.DigestText(), What: "its definition is not the one in the lock file"}
	definition := g.definition(c, name, pinned)
	switch {
	case listed.several:
		change.Digest, change.What = "", "its server lists it several times"
	case change.Digest == "":
		change.What = "its server does not list it"
	case pinned == nil:
		change.What = "it is not in the lock file"
	case definition != nil:
		var names []string
		for _, member := range (toolpin.Difference{Old: pinned, New: definition}).Members() {
			names = append(names, safetext.Name(member, maxInfo))
		}
		if more := len(names) - maxMembers; more > 0 {
			names = append(names[:maxMembers], fmt.Sprintf("%d more members", more))
		}
		change.What = "differs from the lock file in " + strings.Join(names, ", ")
	}
	if definition != nil {
		change.Diff = toolpin.Difference{Upstream: c.Upstream, Tool: name, Old: pinned, New: definition}.Text(maxDiffLines, maxDiff)
	}
	return change
}

// definition returns the definition of a tool that differs from the pinned one, or nil if the
// client's lists are no longer in the cache.
func (g *Catalog) definition(c Client, name string, pinned []byte) []byte {
	for _, page := range g.cache.allPages(c, mcpname.ToolsList) {
		for entry := range (jsonrpc.Value{Bytes: page}).Member("tools").Elements() {
			if other, _ := entry.Member("name").Text(); other != name {
				continue
			}
			one := toolpin.Tools{}
			if err := one.Add(entry); err == nil && string(one[name]) != string(pinned) {
				return one[name]
			}
		}
	}
	return nil
}

// consultPin asks the store about a tool that deviates from the lock file, as consult does.
func (g *Catalog) consultPin(ctx context.Context, c Client, t Tool, v policy.Verdict) bool {
	before, _ := g.histories.get(c.source(), t.Name)
	recorded := before.history.HasUnpinned(t.DigestText())
	if t.several || v.Action == policy.Forward && recorded {
		return false
	}
	change := toolhistory.UnpinnedChange{Digest: t.DigestText()}
	if !recorded {
		change = g.unpinned(c, t, t.Name)
		g.log.WarnContext(logging.Limited(ctx, "tool deviates", c.Upstream+" "+truncateCopy(t.Name)), "a tool deviates from the lock file",
			"upstream", c.Upstream, "tool", truncateCopy(t.Name), "change", change.What)
	}
	ctx, stop := context.WithTimeout(ctx, historyTimeout)
	defer stop()
	now := g.now()
	h, err := g.histories.store.RecordUnpinned(ctx, c.source(), t.Name, change, task.Note{
		At: now, Step: auditlog.ToolChanged, Actor: "gate", Method: mcpname.ToolsCall, ToolDigest: t.DigestText(), PolicySnapshot: v.Snapshot,
	})
	if err != nil {
		g.log.WarnContext(logging.Limited(ctx, "change not noted", c.Upstream), "cannot record that a tool has changed",
			"upstream", c.Upstream, "tool", truncateCopy(t.Name), "err", err)
		return false
	}
	g.histories.set(c.source(), t.Name, h, now)
	return true
}
