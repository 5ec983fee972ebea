package operator

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A claimSet has the claims of a provider about a person.
type claimSet map[string]any

// UnmarshalJSON implements [json.Unmarshaler]; names that are given twice are refused.
func (c *claimSet) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*map[string]any)(c), jsontext.AllowDuplicateNames(false))
}

func (c claimSet) find(name string) any {
	if v, ok := c[name]; ok {
		return v
	}
	outer, rest, deeper := strings.Cut(name, ".")
	inner, ok := c[outer].(map[string]any)
	if !deeper || !ok {
		return nil
	}
	return claimSet(inner).find(rest)
}

func (c claimSet) text(name string) string {
	s, _ := c.find(name).(string)
	return s
}

func (c claimSet) texts(name string) []string {
	switch v := c.find(name).(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			if s, ok := one.(string); ok {
				all = append(all, s)
			}
		}
		return all
	default:
		return nil
	}
}

// email returns the address of somebody, if it is verified to be theirs.
func (c claimSet) email() string {
	verified, _ := c.find("email_verified").(bool)
	if !verified {
		return ""
	}
	return strings.ToLower(c.text("email"))
}

// admit returns the session of somebody, or says why they may not come in.
func (o *OIDC) admit(c claimSet) (s session, why string) {
	s = session{Via: viaOIDC, Issuer: o.Issuer, Name: c.text(o.NameClaim), Email: c.email(), Groups: c.texts(o.GroupsClaim)}
	if o.NameClaim == "email" {
		s.Name = s.Email
	}
	switch {
	case s.Name == "" && o.NameClaim == "email":
		return s, "Your e-mail address is not verified."
	case s.Name == "":
		return s, "The identity provider did not say who you are."
	}
	if why = o.bars(s); why != "" {
		return s, why
	}
	s.Groups = slices.DeleteFunc(s.Groups, func(g string) bool { return o.Matters != nil && !o.matters(g) })
	s.Aliases = c.aliases(s.Name)
	return s, ""
}

// bars returns why somebody may not be here, or nothing.
func (o *OIDC) bars(s session) string {
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

// aliases returns the other names by which somebody may be known.
func (c claimSet) aliases(name string) []string {
	var others []string
	for _, other := range []string{c.text("sub"), c.email(), c.text("preferred_username"), c.text("upn")} {
		if other != "" && other != name && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others
}

func (o *OIDC) matters(group string) bool {
	return o.Matters(group) || slices.Contains(o.Groups, group) ||
		slices.ContainsFunc(ladder[:], func(r Role) bool { return slices.Contains(o.Roles[r], "group:"+group) })
}

// role returns the highest role that somebody has now, or nothing.
func (o *OIDC) role(s session) Role {
	if len(o.Roles) == 0 {
		return Approver
	}
	for _, r := range slices.Backward(ladder[:]) {
		if slices.ContainsFunc(o.Roles[r], func(entry string) bool {
			if group, ok := strings.CutPrefix(entry, "group:"); ok {
				return slices.Contains(s.Groups, group)
			}
			return entry == s.Name
		}) {
			return r
		}
	}
	return ""
}
