package driver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Login is how the client logs in, over TLS.
type Login struct {
	CAFile    string `json:"ca_file"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	TokenFile string `json:"token_file"`

	// TLS trusts the CA alone.
	TLS *tls.Config `json:"-"`
}

// Arguments are those of the command line: BOOTSTRAP [LOGIN]. Without a LOGIN
// it is nil, and the client connects in plaintext.
func Arguments() (string, *Login) {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintf(os.Stderr, "usage: %s BOOTSTRAP [LOGIN]\n", filepath.Base(os.Args[0]))
		os.Exit(2)
	}
	if len(os.Args) == 2 {
		return os.Args[1], nil
	}
	login, err := readLogin(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return os.Args[1], login
}

func readLogin(file string) (*Login, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	login := &Login{}
	if err := json.Unmarshal(data, login); err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(login.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", login.CAFile)
	}
	login.TLS = &tls.Config{RootCAs: pool}
	return login, nil
}

// Token is read again whenever the client needs one.
func (l *Login) Token() (string, error) {
	data, err := os.ReadFile(l.TokenFile)
	return strings.TrimSpace(string(data)), err
}
