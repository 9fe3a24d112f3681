#!/bin/sh
# Make the certificates of the TLS tests again: an authority, a broker for localhost, one for another host, a client.
# Valid from 2020 to 2120, whatever day it is on the machine that runs the tests.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
touch index.txt
cat > ca.conf <<CONF
[ca]
default_ca = tests
[tests]
dir = .
database = ./index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
CONF
issue() { # name, common name, extensions, further arguments of openssl ca
    name=$1 subject=$2 extensions=$3
    shift 3
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$name.key" # PKCS #8, as Java reads it
    openssl req -new -key "$name.key" -subj "/CN=$subject" -out "$name.csr"
    printf '%b' "$extensions" > "$name.ext"
    openssl ca -batch -notext -config ca.conf -in "$name.csr" -out "$name.pem" -extfile "$name.ext" \
        -startdate 20200101000000Z -enddate 21200101000000Z "$@"
}
issue ca "pyclient test authority" "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n" \
    -selfsign -keyfile ca.key
leaf() {
    issue "$1" "$1" "subjectAltName=$2\nbasicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n" -cert ca.pem -keyfile ca.key
    cat "$1.key" >> "$1.pem"
}
leaf broker DNS:localhost,IP:127.0.0.1
leaf elsewhere DNS:elsewhere.example
leaf client DNS:client.example
(openssl x509 -in client.pem; openssl pkcs8 -topk8 -in client.pem -passout pass:secret) > client-encrypted.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout own.key -out own.crt -days 36500 \
    -subj /CN=self-signed
cat own.crt own.key > self-signed.pem
cp ca.pem broker.pem elsewhere.pem client.pem client-encrypted.pem self-signed.pem "$here"
