package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

// asPerson calls f with the access to files that the person has. An agent may exchange files and
// links of the person meanwhile, but that gives it nothing that the person could not reach. Function
// f must not start goroutines.
func (o Options) asPerson(f func() error) error {
	if o.Root != "" || os.Getuid() == o.Person.UID {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		//mutate:swap "o.becomeAndCall(f)" "f()" TestFilesAreReadAsThePerson root reads files for an agent
		done <- o.becomeAndCall(f)
	}()
	return <-done
}

func (o Options) becomeAndCall(f func() error) error {
	for _, set := range []struct {
		id     int
		change func(int) (int, error)
	}{{o.Person.GID, unix.SetfsgidRetGid}, {o.Person.UID, unix.SetfsuidRetUid}} {
		_, _ = set.change(set.id) // returns the previous id, and no error
		if now, err := set.change(-1); now != set.id {
			return fmt.Errorf("cannot use the rights of %s: %w", o.Person.Name, err)
		}
	}
	return f()
}

// prepare removes from root what the person may have given it: the path of programs, and groups,
// which asPerson would otherwise keep.
func (o Options) prepare() error {
	if o.Root != "" || os.Getuid() != 0 {
		return nil
	}
	return errors.Join(os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), syscall.Setgroups(nil))
}

// giveTo lets the group of a user read a file of root.
func (o Options) giveTo(file, name string) error {
	if o.Root != "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(file, 0, gid)
}

// userExists reports whether there is a user with this name.
func (o Options) userExists(name string) bool {
	_, err := user.Lookup(name)
	return err == nil && o.Root == ""
}

// keepForRoot gives the directory of the store, which only its owner can enter, to root.
func (o Options) keepForRoot(dir string) error {
	err := os.Chown(o.at(dir), 0, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// run runs commands as root.
func (o Options) run(ctx context.Context, commands [][]string) error {
	return o.runWith(ctx, nil, commands)
}

// runAsPerson runs commands as the person.
func (o Options) runAsPerson(ctx context.Context, commands [][]string) error {
	return o.runWith(ctx, &syscall.Credential{Uid: uint32(o.Person.UID), Gid: uint32(o.Person.GID)}, commands)
}

func (o Options) runWith(ctx context.Context, as *syscall.Credential, commands [][]string) error {
	for _, c := range commands {
		if o.Root != "" {
			return nil
		}
		cmd := exec.CommandContext(ctx, c[0], c[1:]...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// startTimeout is how long the gate may take to start.
const startTimeout = 20 * time.Second

// awaitSocket waits until the gate serves agents.
func (o Options) awaitSocket(ctx context.Context, socket string) error {
	if o.Root != "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return c.Close()
		}
		if !pause.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the gate does not start; journalctl -u %s says why: %w", pathsOf(o.Person.Name).user, err)
		}
	}
}

// onlyRootChanges returns an error if a user other than root can change or replace a file.
func onlyRootChanges(file string) error {
	for path := file; ; path = filepath.Dir(path) {
		about, err := os.Lstat(path)
		if err != nil {
			return err
		}
		stat, ok := about.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != 0 || about.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("others than root can change %s", path)
		}
		if path == "/" {
			return nil
		}
	}
}

// rootGroups are groups whose members can become root.
var rootGroups = []string{"docker", "lxd", "incus-admin", "disk", "libvirt", "podman"}

// rootWays returns how programs of the person can become root without a password, as predicates.
func rootWays(p Person) (ways []string) {
	u := user.User{Uid: strconv.Itoa(p.UID), Gid: strconv.Itoa(p.GID), Username: p.Name}
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil && slices.Contains(rootGroups, g.Name) {
			ways = append(ways, "is in the group "+g.Name)
		}
	}
	if out, err := exec.CommandContext(context.Background(), "sudo", "-n", "-l", "-U", p.Name).Output(); err == nil && bytes.Contains(out, []byte("NOPASSWD")) {
		ways = append(ways, "may use sudo without a password")
	}
	return ways
}
