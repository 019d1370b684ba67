#!/bin/sh
# Creates the namespace and everturn's search attributes. Safe to repeat.
# Reads TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, as the temporal command does, and RETENTION.
set -eu

until temporal operator cluster health; do sleep 1; done

temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" > /dev/null 2>&1 ||
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"

# A new namespace takes up to ten seconds to be known everywhere.
until temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
  --name EverturnStatus --type Keyword \
  --name EverturnAgent --type Keyword \
  --name EverturnModel --type Keyword \
  --name EverturnTokens --type Int \
  --name EverturnCostUsd --type Double \
  --name EverturnMetadata --type KeywordList \
  --name EverturnEvaluator --type Keyword \
  --name EverturnScore --type Double \
  --name EverturnLabel --type Keyword
do sleep 1; done
