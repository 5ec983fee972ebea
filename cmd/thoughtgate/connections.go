package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
)

func newConnections() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List or remove the gate's connections to servers that want OAuth",
		Long: "List the connections that a running gate uses: for whom, to which server, and with which rights. People connect in\n" +
			"the inbox. An administrator sees and removes all connections, others their own.",
		Args: noArguments,
	}
	g := newGateFlags(cmd.PersistentFlags(), "the operator token")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.AddCommand(newRemoveConnection(g))
	return g.run(cmd, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		out := newScreen(cmd.OutOrStdout())
		listed, err := c.Connections(cmd.Context())
		switch {
		case err != nil:
			return err
		case *asJSON:
			return out.json(map[string]any{"connections": listed})
		case len(listed) == 0:
			return out.line("No connections.")
		}
		t := newTable("ID", "SERVER", "FOR", "BY", "SINCE", "RIGHTS", "STATE")
		for _, one := range listed {
			state := "connected"
			if !one.Ended.IsZero() {
				state = "ended: connect again"
			}
			t.add(oneLine(one.ID, maxCell), oneLine(one.Upstream, maxCell), oneLine(cmp.Or(one.Person, "all agents"), maxCell), oneLine(one.By, maxCell),
				formatDuration(time.Since(one.At))+" ago", oneLine(strings.Join(one.Scopes, " "), maxCell), state)
		}
		return out.print(t.text())
	})
}

func newRemoveConnection(g gateFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a connection and revoke its tokens",
		Long:  "Remove a connection: the gate deletes its tokens and asks the authorization server to revoke them.",

		ValidArgsFunction: g.completeOne(connectionIDs),
	}
	reason := cmd.Flags().String("reason", "", "`text` of the reason")
	return runOne(g, cmd, (*client.Client).FindConnection, func(cmd *cobra.Command, c *client.Client, id string) error {
		one, err := c.RemoveConnection(cmd.Context(), id, *reason)
		if err != nil {
			return err
		}
		return newScreen(cmd.OutOrStdout()).line("removed the connection of %s to %s", cmp.Or(one.Person, "all agents"), one.Upstream)
	})
}
