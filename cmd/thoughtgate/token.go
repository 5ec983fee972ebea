package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
)

func newToken() *cobra.Command {
	cmd := group(&cobra.Command{Use: "token", Short: "Create tokens for operators and agents"})
	cmd.AddCommand(newTokenNew())
	return cmd
}

func newTokenNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Create a token and the configuration line that accepts it",
		Long: "Create a token, and the configuration line that accepts it. The token is shown only once: the configuration\n" +
			"contains only its hash. Without --agent the token is for an operator. Once operators are configured, the token that\n" +
			"serve generates is not valid: add one for yourself, too.",
		Args: noArguments,
	}
	name := cmd.Flags().String("name", "", "`name` of its owner")
	groups := cmd.Flags().StringSlice("groups", nil, "the owner's `groups`, separated by commas")
	role := cmd.Flags().String("role", "approver", "`role` of an operator: viewer, rejecter, approver or admin")
	agent := cmd.Flags().Bool("agent", false, "create the token for an agent")
	owner := cmd.Flags().String("owner", "", "`name` of the person who runs the agent and therefore may not approve its calls")
	roles := []string{"viewer", "rejecter", "approver", "admin"}
	completeFlag(cmd, "role", words(roles...))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case strings.TrimSpace(*name) == "":
			return &usageError{cmd.CommandPath(), errors.New("--name is required")}
		case *agent && cmd.Flags().Changed("role"):
			return &usageError{cmd.CommandPath(), errors.New("agents have no --role")}
		case !*agent && *owner != "":
			return &usageError{cmd.CommandPath(), errors.New("only agents have an --owner")}
		}
		if err := oneOf("role", *role, roles...); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		kind, setting, more := "tgo", "operators.tokens", ", role: "+*role
		if *agent {
			kind, setting, more = "tga", "identity.tokens", ""
		}
		if *owner != "" {
			more = ", owner: " + strconv.Quote(*owner)
		}
		if len(*groups) > 0 {
			more = ", groups: [" + strings.Join(quoteAll(*groups), ", ") + "]" + more
		}
		token := identity.NewToken(kind)
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "token: %s\n\nadd to %s:\n  - { name: %s, hash: %q%s }\n",
			token, setting, strconv.Quote(*name), identity.HashOf(token), more)
		return err
	}
	return cmd
}

func quoteAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return quoted
}
