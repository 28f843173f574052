printf '1042\n1043\n1044\n' > orders.csv
export ANTHROPIC_BASE_URL="${OPENAI_BASE_URL%/v1}" ANTHROPIC_MODEL=shop ANTHROPIC_DEFAULT_HAIKU_MODEL=shop
export ANTHROPIC_CUSTOM_HEADERS="x-reasc-usage: winner" CLAUDE_CODE_ATTRIBUTION_HEADER=0
claude -p "How many orders are in orders.csv?" --allowedTools Bash --output-format stream-json --verbose </dev/null |
  grep -o '"stdout":"[^"]\+"\|"result":"[^"]\+"'
