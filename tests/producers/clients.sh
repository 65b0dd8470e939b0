#!/bin/sh
# Fetch the real clients of docs/producers.md into a directory. Their packages come from PyPI, npm, the
# Go module proxy and Maven Central.
# clients.sh DIRECTORY
set -eu
dir=$1
mkdir -p "$dir/node" "$dir/go" "$dir/java"
[ -d "$dir/venv" ] || python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet redis
(cd "$dir/node" && npm install --silent --no-fund --no-audit redis)
if [ ! -f "$dir/go/go.mod" ]; then
  (cd "$dir/go" && go mod init example.org/producer && go get github.com/redis/go-redis/v9)
fi
cat > "$dir/java/pom.xml" <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>producer</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>redis.clients</groupId><artifactId>jedis</artifactId><version>6.2.0</version></dependency>
  </dependencies>
</project>
POM
(cd "$dir/java" && mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=jars)
