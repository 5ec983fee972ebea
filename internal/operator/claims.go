package operator

import (
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// emailIn returns the e-mail address in claims if it is verified.
func emailIn(c identity.Claims) string {
	if !c.IsTrue("email_verified") {
		return ""
	}
	return strings.ToLower(c.Text("email"))
}

// sessionOf returns the session for claims, or the reason for a refusal.
func (o *OIDC) sessionOf(c identity.Claims) (s session, why string) {
	s = session{Via: viaOIDC, Issuer: o.Issuer, Name: c.Text(o.NameClaim), Email: emailIn(c), Groups: c.Texts(o.GroupsClaim)}
	if o.NameClaim == "email" {
		s.Name = s.Email
	}
	switch {
	case s.Name == "" && o.NameClaim == "email":
		return s, "Your e-mail address is not verified."
	case s.Name == "":
		return s, "The identity provider did not say who you are."
	}
	if why = o.refusalReason(s); why != "" {
		return s, why
	}
	s.Groups = slices.DeleteFunc(s.Groups, func(g string) bool { return o.IsRelevant != nil && !o.isRelevant(g) })
	s.Aliases = identity.Aliases(s.Name, c.Text("sub"), s.Email, c.Text("preferred_username"), c.Text("upn"))
	return s, ""
}

// refusalReason returns why the user of a session may not sign in, or "".
func (o *OIDC) refusalReason(s session) string {
	_, domain, _ := strings.Cut(s.Email, "@")
	switch {
	case len(o.Domains) > 0 && !slices.ContainsFunc(o.Domains, func(d string) bool { return strings.EqualFold(d, domain) }):
		return "Your e-mail address may not sign in here."
	case len(o.Groups) > 0 && !slices.ContainsFunc(s.Groups, func(g string) bool { return slices.Contains(o.Groups, g) }):
		return "None of your groups may sign in here."
	default:
		return ""
	}
}

func (o *OIDC) isRelevant(group string) bool {
	return o.IsRelevant(group) || slices.Contains(o.Groups, group) ||
		slices.ContainsFunc(roles[:], func(r Role) bool { return policy.HasGroup(o.Roles[r], group) })
}

// role returns the present role of the user of a session, or "".
func (o *OIDC) role(s session) Role {
	if len(o.Roles) == 0 {
		return Approver
	}
	for _, r := range slices.Backward(roles[:]) {
		if slices.ContainsFunc(o.Roles[r], func(entry string) bool {
			if group, ok := policy.Group(entry); ok {
				return slices.Contains(s.Groups, group)
			}
			return entry == s.Name
		}) {
			return r
		}
	}
	return ""
}
