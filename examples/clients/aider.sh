echo "price = 42" > shop.py
aider --model openai/shop --edit-format diff --no-git --yes-always --no-show-model-warnings --no-pretty \
  --message "A lamp costs 14 euros: mend the price." shop.py </dev/null | grep Applied
cat shop.py
