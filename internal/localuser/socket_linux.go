package localuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
)

// The kernel's protocol for questions about one socket, sock_diag(7).
const (
	sockDiag         = 4  // NETLINK_SOCK_DIAG
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	noCookie         = ^uint64(0)

	headerSize   = 16 // struct nlmsghdr
	addressSize  = 16 // room for an address in struct inet_diag_sockid
	socketIDSize = 48 // struct inet_diag_sockid
	questionSize = headerSize + 8 + socketIDSize
	socketIDAt   = headerSize + 4                  // in the answer
	userAt       = socketIDAt + socketIDSize + 3*4 // in the answer
	inodeAt      = userAt + 4                      // in the answer
	answerSize   = inodeAt + 4
)

// socketUser returns the user whose socket at one address is connected to the
// other.
func socketUser(at, to netip.AddrPort) (uid int, err error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, sockDiag)
	if err != nil {
		return 0, err
	}
	defer func() { _ = syscall.Close(fd) }()
	limit := syscall.NsecToTimeval(int64(time.Second))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return 0, err
	}
	question := socketQuestion(at, to)
	if err := syscall.Sendto(fd, question, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 512) // on the stack, which the goroutine of a stream keeps; all that matters is in the first 100
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	return readSocketUser(question, answer[:n])
}

// socketQuestion asks for the socket at one address that is connected to the other.
func socketQuestion(at, to netip.AddrPort) []byte {
	order := binary.NativeEndian
	family := byte(syscall.AF_INET)
	if !at.Addr().Unmap().Is4() {
		family = syscall.AF_INET6
	}
	q := make([]byte, 0, questionSize)
	q = order.AppendUint32(q, questionSize)
	q = order.AppendUint16(q, sockDiagByFamily)
	q = order.AppendUint16(q, syscall.NLM_F_REQUEST)
	q = order.AppendUint64(q, 0) // the number of the message, and of its sender
	q = append(q, family, syscall.IPPROTO_TCP, 0, 0)
	q = order.AppendUint32(q, ^uint32(0)) // in any state
	q = binary.BigEndian.AppendUint16(q, at.Port())
	q = binary.BigEndian.AppendUint16(q, to.Port())
	q = appendSocketAddress(q, at.Addr())
	q = appendSocketAddress(q, to.Addr())
	q = order.AppendUint32(q, 0) // on any interface
	return order.AppendUint64(q, noCookie)
}

func appendSocketAddress(q []byte, addr netip.Addr) []byte {
	var room [addressSize]byte
	copy(room[:], addr.Unmap().AsSlice())
	return append(q, room[:]...)
}

var (
	errNoSocket = errors.New("there is no such socket")
	errClosed   = errors.New("its program has closed the socket")
)

// readSocketUser returns the user in the answer to a question. The kernel may
// answer with a socket that listens at the same address: that is another. A socket that was
// closed has no inode, and the kernel says that it is root's.
func readSocketUser(question, answer []byte) (uid int, err error) {
	order := binary.NativeEndian
	if len(answer) < headerSize+4 {
		return 0, errNoSocket
	}
	if kind := order.Uint16(answer[4:]); kind != sockDiagByFamily {
		return 0, fmt.Errorf("%w: message of type %d, code %d", errNoSocket, kind, int32(order.Uint32(answer[headerSize:]))) //nolint:gosec // it is signed
	}
	const ends = 2 + 2 + 2*addressSize // the ports and addresses in an inet_diag_sockid
	if len(answer) < answerSize || string(answer[socketIDAt:][:ends]) != string(question[headerSize+8:][:ends]) {
		return 0, errNoSocket
	}
	if order.Uint32(answer[inodeAt:]) == 0 {
		return 0, errClosed
	}
	return int(order.Uint32(answer[userAt:])), nil
}
