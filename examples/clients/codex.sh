printf '1042\n1043\n1044\n' > orders.csv
provider="name='reasc', base_url='$OPENAI_BASE_URL', wire_api='responses', http_headers={x-reasc-usage='winner'}"
codex exec --json --skip-git-repo-check -c model=shop -c model_provider=reasc -c "model_providers.reasc={$provider}" \
  -c model_context_window=32768 -c web_search=disabled "How many orders are in orders.csv?" </dev/null |
  grep -o '"aggregated_output":"[^"]\+"\|"text":"[^"]\+"'
