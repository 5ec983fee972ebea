package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/isolate"
)

// isolateFlags are the flags of isolate.
type isolateFlags struct {
	user, inbox, root string
	clients, grants   []string
	yes, dryRun, undo bool
}

func newIsolate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "isolate",
		Short: "Keep your agents away from the gate and the servers, which then run as another user",
		Long: "Let the gate and the servers in the configurations of your MCP clients run as a user of their own, whose store,\n" +
			"configuration and keys programs of your account cannot read. The clients then reach the servers only through the\n" +
			"gate's socket, and you decide in a browser. The command shows what it will do, and asks. It needs Linux with\n" +
			"systemd, and root: use sudo. --undo undoes everything. Clients: " + clientconfig.Names() + ".",
		Args: noArguments,
	}
	var f isolateFlags
	cmd.Flags().StringVar(&f.user, "user", "", "`name` of the user whose agents are isolated (default: the one who uses sudo)")
	cmd.Flags().StringArrayVar(&f.clients, "for", nil, "`client` whose servers are isolated; repeat for several (default: all that you use)")
	cmd.Flags().StringArrayVar(&f.grants, "grant", nil, "`path` of yours that the servers may read, or with :rw at its end also change; repeat for several")
	cmd.Flags().StringVar(&f.inbox, "inbox", "127.0.0.1:818", "`address` of the inbox; only root and the gate can take a port below 1024")
	cmd.Flags().StringVar(&f.root, "root", "", "write all files below this `directory`, and start nothing")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVar(&f.undo, "undo", false, "undo it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if f.undo {
			undo, err := isolate.Undo(o, out)
			if err != nil {
				return err
			}
			return f.do(cmd, undo)
		}
		setup, err := isolate.Plan(o)
		if err != nil {
			return err
		}
		if err := f.do(cmd, setup.Work); err != nil || f.dryRun {
			return err
		}
		_, err = fmt.Fprintf(out, "Restart your clients. Sign in at %s with this token, which is shown only now; do not let the browser save it:\n%s\n", setup.InboxURL(), setup.Token)
		return err
	}
	return cmd
}

// do shows the work, asks, and does it.
func (f isolateFlags) do(cmd *cobra.Command, work *isolate.Work) error {
	if err := work.Print(cmd.OutOrStdout()); err != nil || f.dryRun {
		return err
	}
	if !f.yes {
		_, _ = fmt.Fprint(cmd.ErrOrStderr(), "Do this? [y/N] ")
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if strings.TrimSpace(answer) != "y" {
			return errors.New("nothing was done; --yes goes on without asking")
		}
	}
	if err := work.Do(cmd.Context()); err != nil {
		return fmt.Errorf("%w; thoughtgate isolate --undo undoes what was done", err)
	}
	return nil
}

// options returns the options of the setup.
func (f isolateFlags) options() (o isolate.Options, err error) {
	switch {
	case runtime.GOOS != "linux":
		return o, errors.New("isolate is not supported on this system yet: it needs Linux with systemd")
	case f.root == "" && os.Getuid() != 0 && (!f.dryRun || f.undo):
		return o, errors.New("isolate needs root: use sudo")
	}
	o = isolate.Options{Policy: wrapPolicy, Inbox: f.inbox, Clients: f.clients, Grants: f.grants}
	if o.Person, err = f.person(); err != nil {
		return o, err
	}
	if f.root != "" {
		if o.Root, err = filepath.Abs(f.root); err != nil {
			return o, err
		}
	}
	if o.Program, err = os.Executable(); err == nil {
		o.Program, err = filepath.EvalSymlinks(o.Program)
	}
	return o, err
}

// person returns the user whose agents are isolated.
func (f isolateFlags) person() (isolate.Person, error) {
	u, err := user.Lookup(cmp.Or(f.user, os.Getenv("SUDO_USER"), userName()))
	if err != nil {
		return isolate.Person{}, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return isolate.Person{}, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return isolate.Person{Name: u.Username, UID: uid, GID: gid, Home: u.HomeDir}, err
}
