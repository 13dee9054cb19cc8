package natsconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Authority signs the certificates of servers and users.
type Authority struct {
	cert    *x509.Certificate
	certPEM []byte
	key     *ecdsa.PrivateKey
}

// clockSlack is how far another machine's clock may be behind.
const clockSlack = 10 * time.Minute

// NewAuthority creates an authority that is valid for longer than its certificates.
func NewAuthority(random io.Reader, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "vestibule NATS"},
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(2 * maxValid),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(random, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, encode("CERTIFICATE", der), key}, nil
}

// LoadAuthority returns the authority of a PEM certificate and its PEM ECDSA key.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	c, _ := pem.Decode(certPEM)
	k, _ := pem.Decode(keyPEM)
	if c == nil || k == nil {
		return nil, errors.New("must be PEM")
	}
	cert, err := x509.ParseCertificate(c.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("certificate: must be of an authority")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("key: must be the ECDSA key of the certificate")
	}
	return &Authority{cert, encode("CERTIFICATE", c.Bytes), key}, nil
}

// CertPEM returns the authority's certificate.
func (a *Authority) CertPEM() []byte { return a.certPEM }

// KeyPEM returns the authority's key. Its owner can act as any user.
func (a *Authority) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return encode("PRIVATE KEY", der), nil
}

// Issue returns a certificate for hosts, addresses or users, and its key.
func (a *Authority) Issue(
	random io.Reader, now time.Time, valid time.Duration, names []string,
) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(random, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", k), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
