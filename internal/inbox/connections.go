package inbox

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// A serverView is a server on the page of connections.
type serverView struct {
	connection.Server

	own    *connection.Connection // the one that the operator can use; nil if there is none
	others []connection.Connection
	may    bool // the operator may connect it
}

// connections shows the servers that people connect, with the operator's connections. Administrators see all.
func (i *Inbox) connections(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	return i.showConnections(w, r, who, page{})
}

func (i *Inbox) showConnections(w http.ResponseWriter, r *http.Request, who operator.Operator, p page) error {
	all, err := i.cfg.Connections.Visible(r.Context(), actor(who))
	if err != nil {
		return err
	}
	var list []serverView
	for _, s := range i.cfg.Connections.Servers() {
		v := serverView{Server: s, may: s.Mode == connection.Principal || who.Role.Includes(operator.Admin)}
		for _, c := range all {
			switch {
			case c.Upstream != s.Name:
			case c.Person == s.Owner(who.Name):
				v.own = &c
			default:
				v.others = append(v.others, c)
			}
		}
		list = append(list, v)
	}
	p.section, p.title, p.self = "connections", "Connections", "/connections"
	return i.page(w, r, who, p, func(f frame) templ.Component { return connectionsPage(f, list) })
}

// actor returns the operator of a request as the one who changes a connection.
func actor(who operator.Operator) connection.Actor {
	return connection.Actor{Name: who.Name, Admin: who.Role.Includes(operator.Admin), Session: who.SessionID()}
}

// connect begins a sign-in, and shows where it leads. It does not redirect: the policy for contents forbids
// forms that lead to other sites.
func (i *Inbox) connect(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	name := r.PathValue("id")
	to, err := i.cfg.Connections.Begin(r.Context(), name, actor(who))
	if err != nil {
		return i.notConnected(w, r, who, err)
	}
	at, err := url.Parse(to)
	if err != nil {
		return err
	}
	return i.page(w, r, who, page{section: "connections", title: "Connect " + name, self: "/connections"}, func(f frame) templ.Component {
		return connectPage(f, name, at)
	})
}

// connected ends a sign-in, when the browser comes back.
func (i *Inbox) connected(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	if _, err := i.cfg.Connections.Finish(r.Context(), r.URL.Path, r.URL.Query(), actor(who)); err != nil {
		return i.notConnected(w, r, who, err)
	}
	http.Redirect(w, r, "/connections", http.StatusSeeOther) // without the code of the sign-in
	return nil
}

// notConnected shows why a sign-in has failed.
func (i *Inbox) notConnected(w http.ResponseWriter, r *http.Request, who operator.Operator, err error) error {
	status := http.StatusBadGateway
	switch {
	case errors.Is(err, connection.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, connection.ErrForbidden):
		status = http.StatusForbidden
	case errors.Is(err, connection.ErrSignIn):
		status = http.StatusBadRequest
	}
	return i.showConnections(w, r, who, page{status: status, notice: &notice{title: "Not connected", text: visible(sentence(err))}})
}

// disconnect removes a connection.
func (i *Inbox) disconnect(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	c, err := i.cfg.Connections.Remove(r.Context(), r.PathValue("id"), actor(who), "")
	switch {
	case errors.Is(err, connection.ErrNotFound):
		return i.showConnections(w, r, who, page{status: http.StatusNotFound, notice: &notice{title: "Nothing was removed", text: "The connection is gone already."}})
	case errors.Is(err, connection.ErrForbidden):
		return i.showConnections(w, r, who, page{status: http.StatusForbidden, notice: &notice{title: "Nothing was removed", text: sentence(err)}})
	case err != nil:
		return err
	}
	return i.showConnections(w, r, who, page{notice: &notice{good: true, title: "The connection was removed", text: "The gate does not use " + c.Upstream + " in this name any more."}})
}
