package slack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slack-go/slack"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
)

// people says who somebody in Slack is to the gate. Members of user groups are asked
// of Slack, and remembered for a minute.
type people struct {
	names map[string]string // of approvers, by their ids in Slack
	teams map[string]string // groups of the gate, by the ids of user groups
	now   func() time.Time
	api   *slack.Client

	mu      sync.Mutex
	members map[string]membership // by user group
}

// A membership is who belongs to a user group.
type membership struct {
	users []string
	until time.Time
}

// membershipLife is how long a membership is remembered.
const membershipLife = time.Minute

// errStranger is the error of somebody who is no approver in Slack.
var errStranger = errors.New("you are not set up as an approver: ask whoever runs the gate")

// approver returns the approver that a user of Slack is.
func (p *people) approver(ctx context.Context, id string) (approval.Approver, error) {
	user, err := p.member(ctx, id)
	if err != nil {
		return approval.Approver{}, err
	}
	groups, err := p.groups(ctx, id)
	if err != nil {
		return approval.Approver{}, err
	}
	a := approval.Approver{Name: p.names[id], Groups: groups, Roles: []string{"approver"}}
	a.Aliases = []string{"slack:" + id} // one person, whatever their address is by then
	email := user.Profile.Email
	if !user.IsEmailConfirmed {
		email = ""
	}
	if email != "" {
		a.Aliases = append(a.Aliases, email)
	}
	switch {
	case a.Name != "":
		return a, nil
	case len(groups) > 0 && email != "":
		a.Name = email
		return a, nil
	default:
		return approval.Approver{}, errStranger
	}
}

// member returns a user who is a person of the workspace.
func (p *people) member(ctx context.Context, id string) (*slack.User, error) {
	user, err := p.api.GetUserInfoContext(ctx, id)
	if err != nil {
		return nil, err
	}
	if user.IsBot || user.Deleted || user.IsStranger || user.ID != id {
		return nil, errStranger
	}
	return user, nil
}

// groups returns the groups of the gate to which a user belongs.
func (p *people) groups(ctx context.Context, id string) ([]string, error) {
	var found []string
	for _, group := range slices.Sorted(maps.Keys(p.teams)) {
		users, err := p.membersOf(ctx, group)
		if err != nil {
			return nil, err
		}
		if slices.Contains(users, id) {
			found = append(found, p.teams[group])
		}
	}
	return found, nil
}

func (p *people) membersOf(ctx context.Context, group string) ([]string, error) {
	now := p.now()
	p.mu.Lock()
	known := p.members[group]
	p.mu.Unlock()
	if now.Before(known.until) {
		return known.users, nil
	}
	users, err := p.api.GetUserGroupMembersContext(ctx, group)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[group] = membership{users: users, until: now.Add(membershipLife)}
	return users, nil
}
